"""Stage 4: GRPO on a step's stored, scored rollouts; publishes the adapter of the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.codec import trajectories_from
from storage.errors import UpdateError
from storage.gates import check_gates
from storage.layout import data_file
from storage.schemas import SCORES, TOKEN_STATS, TRAJECTORIES, UPDATES
from storage.stages import Stage
from storage.store import Store
from tasks.learner import Learner
from tasks.progress import progress
from tasks.rewards.scorers import scorer_name
from tasks.run import Run

if TYPE_CHECKING:
    from tasks.grpo.results import UpdateResult

EMPTY_BATCHES = 10  # in a row, and the run ends: nothing that it samples can train it


@task(cache_policy=NO_CACHE)
def initialise_policy(run: Run, learner: Learner) -> None:
    """Publish the adapter of step 0, if the run has none yet."""
    if run.parent is not None:
        return  # it goes on from its parent's adapter
    stage = run.begin(
        "initialise_policy",
        0,
        inputs=[],
        settings=[run.config.model.model_dump(), run.config.seed],
    )
    if stage is None:
        return
    with stage, progress("load the base model"):
        learner.initialise(stage)


@task(cache_policy=NO_CACHE)
def update_policy(run: Run, step: int, learner: Learner, *, rerun: bool = False) -> None:
    """Publish the adapter of `step + 1`, the token statistics and the record of each optimiser step.

    Raises:
        UpdateError: ten updates in a row had nothing to learn from.
    """
    scorer = scorer_name(run.config.reward)
    where: dict[str, Any] = {"step": step, "split": "train"}
    rollouts = {"run": run.rollouts_of(step, "train"), **where}
    scores = {"run": run.name, **where, "scorer": scorer}
    stage = run.begin(
        "update_policy",
        step,
        inputs=[
            data_file(TRAJECTORIES, **rollouts),
            data_file(SCORES, **scores),
            run.adapter_folder(step),
        ],
        settings=[run.config.update.model_dump(), run.config.rollouts.temperature, run.config.seed],
        rerun=rerun,
    )
    if stage is None:
        return
    with stage, progress("update the policy") as report:
        from tasks.grpo.advantages import group_advantages
        from tasks.training_data import training_sequences

        check_gates(run.store, rollouts["run"], step, scorer, scored_by=run.name)
        trajectories = trajectories_from(run.store.read(TRAJECTORIES, **rollouts), **rollouts)
        rewards = _rewards(run.store, **scores)
        advantages = group_advantages(
            [rewards[t.trajectory_id] for t in trajectories],
            [t.key.group_id for t in trajectories],
            run.config.update.advantage_scale,
        )
        scored = {
            t.trajectory_id: advantage
            for t, advantage in zip(trajectories, advantages.values, strict=True)
            if rewards[t.trajectory_id] is not None
        }
        sequences = training_sequences(trajectories, scored)
        result = learner.update(
            step, sequences, lambda done, total: report.advance(done, f"{done}/{total} rows")
        )
        _publish(run, step, result, stage)
        learner.publish(stage, step + 1)
        stage.counts.update(trajectories=len(scored), tokens=sum(row.tokens for row in result.steps))
    _refuse_to_spin(run.store, run.name, step)


def _rewards(store: Store, **partitions: Any) -> dict[str, float | None]:
    table = store.read(SCORES, columns=["trajectory_id", "reward"], **partitions)
    return dict(zip(table["trajectory_id"].to_pylist(), table["reward"].to_pylist(), strict=True))


def _publish(run: Run, step: int, result: UpdateResult, stage: Stage) -> None:
    token_stats = pa.Table.from_pylist([vars(row) for row in result.token_stats], schema=TOKEN_STATS.schema)
    updates = pa.Table.from_pylist([vars(row) for row in result.steps], schema=UPDATES.schema)
    stage.publish_table(TOKEN_STATS, token_stats, run=run.name, step=step)
    stage.publish_table(UPDATES, updates, run=run.name, step=step)


def _refuse_to_spin(store: Store, run: str, step: int) -> None:
    """End a run whose last updates all had nothing to learn from."""
    recent = range(step - EMPTY_BATCHES + 1, step + 1)
    if recent.start < 0:
        return
    reasons = [
        reason
        for past in recent
        if store.has(UPDATES, run=run, step=past)
        for reason in store.read(UPDATES, columns=["skipped"], run=run, step=past)["skipped"].to_pylist()
    ]
    if len(reasons) >= EMPTY_BATCHES and all(reason is not None for reason in reasons):
        raise UpdateError(
            f"The last {EMPTY_BATCHES} updates of run {run} changed nothing; the latest because of "
            f"{reasons[-1]!r}. Look at `rollmill ask zero_variance_groups` and `rollmill ask stop_reasons`: "
            "the task may be too hard or too easy for this policy, or its rollouts fail."
        )
