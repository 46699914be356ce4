"""Scheduled retraining: fresh scenarios, some updates from the champion, a gate, and promotion or a reason.

    champion ──► fork of the day ──► train ──► compare on the held-out set ──► approve? ──► promote | stop

Needs no variables beside those of training. prefect.yaml schedules it nightly, switched off until its
parameters name a config.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.exceptions import FlowPauseTimeout
from prefect.flow_runs import apause_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run

from flows.config import check_config
from flows.train import run_chain
from storage.registry import Registry
from storage.store import Store
from tasks.gate import compare_steps, decide
from tasks.retraining import begin_retraining, dated_config, registered_model
from tasks.rewards.scorers import scorer_name
from tasks.run import Run
from tasks.settings import GateSettings, RunConfig


class Approval(RunInput):
    """What a person answers before a promotion."""

    promote: bool = True
    note: str = ""


@flow(name="retrain", flow_run_name="retrain {config.name}")
async def retrain(
    config: RunConfig,
    updates: int = 10,
    day: date | None = None,
    gate: GateSettings = GateSettings(),  # noqa: B008  (frozen)
    approval_hours: float | None = None,
) -> str:
    """Train from the champion on fresh scenarios, and promote what comes of it if it is better.

    Args:
        config: What is trained. Its name and seed get the day added; `steps` does not count here.
        updates: Updates to make from the champion, or from the base model where there is none yet.
        day: The day whose run this is; by default that for which the flow is scheduled. A run of that day
            which was begun before is gone on with.
        gate: What the new policy must show on the held-out scenarios.
        approval_hours: Wait for a person's approval before promoting, for so long; null promotes at once.

    Returns:
        What was decided, and why.
    """
    day = day or flow_run.scheduled_start_time.date()
    check_config(dated_config(config, day))
    registry = Registry(Store(config.store), config.tracking.mlflow_uri, registered_model(config))
    champion = registry.champion()
    run = begin_retraining(config, day, updates, champion)
    await run_chain(run)

    last, scorer = run.config.steps, scorer_name(run.config.reward)
    compared = compare_steps(
        run.store, run.name, scorer, champion=run.first_step, candidate=last, confidence=gate.confidence
    )
    promoted, reason = decide(compared, gate)
    started_from = None if run.parent is None else (run.parent.adapter, run.parent.step)
    now = registry.champion()
    if now is not None and (now.run, now.step) == (run.name, last):
        promoted, reason = False, "it is the champion already"
    elif (None if now is None else (now.run, now.step)) != started_from:
        promoted, reason = False, "the champion has changed since this run began; retrain from the new one"
    if promoted and approval_hours is not None:
        promoted, reason = await _ask(run, reason, approval_hours)
    if promoted:
        version = registry.promote(run.name, last, reason).version
        verdict = f"promoted to champion as version {version}"
    else:
        verdict = "not promoted"
    report = f"Step {last} of run {run.name} is {verdict}: {reason}."
    await acreate_markdown_artifact(report, key="retrain", description="The champion gate's verdict")
    return report


async def _ask(run: Run, reason: str, hours: float) -> tuple[bool, str]:
    """Pause until a person approves; no answer in time promotes nothing."""
    question = f"Promote step {run.config.steps} of run {run.name}? It is {reason}."
    approval = Approval.with_initial_data(description=question)
    try:
        answer = await apause_flow_run(wait_for_input=approval, timeout=int(hours * 3600))
    except FlowPauseTimeout:
        return False, f"{reason}; but nobody approved it within {hours:g} hours"
    note = f" ({answer.note})" if answer.note else ""
    return answer.promote, f"{reason}; {'approved' if answer.promote else 'refused'} by a person{note}"


@flow(name="backfill", flow_run_name="backfill {config.name}")
async def backfill(
    config: RunConfig,
    days: Sequence[date],
    updates: int = 10,
    gate: GateSettings = GateSettings(),  # noqa: B008
) -> list[str]:
    """Retrain for each of several days, in their order: each goes on from the champion of the day before.

    Args:
        config: What is trained.
        days: The days, each of which gets a run.
        updates: Updates to make for each day.
        gate: What a new policy must show.
    """
    return [await retrain(config, updates, day, gate) for day in sorted(days)]
