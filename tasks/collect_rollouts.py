"""Stage 2: the policy plays a step's scenarios. Finished groups are kept; what is missing is played."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from storage.codec import scenarios_from, trajectories_from, trajectories_table
from storage.errors import RolloutError
from storage.layout import StageKey, data_file
from storage.records import GroupKey, Scenario, StopReason, Trajectory
from storage.schemas import SCENARIOS, TRAJECTORIES
from storage.stages import Stage
from storage.staging import StagedGroups, clear_staged
from tasks.episodes.episode import Player
from tasks.episodes.group import play_group
from tasks.loading import make_environment
from tasks.policy import serve_step
from tasks.progress import Progress, progress
from tasks.run import Run
from tasks.scenarios import draw_scenarios
from tasks.settings import RunConfig


@task(cache_policy=NO_CACHE)
async def collect_rollouts(
    run: Run, step: int, player: Player, *, split: str = "train", rerun: bool = False
) -> None:
    """Publish the trajectories of one step: all groups of the split, played by the adapter of that step.

    Raises:
        RolloutError: more rollouts failed than `rollouts.max_exceptions` tolerates.
        InferenceError: the sampler does not serve the adapter's weights.
    """
    if run.rollouts_of(step, split) != run.name:
        return
    stage = run.begin(
        "collect_rollouts",
        step,
        split,
        inputs=[data_file(SCENARIOS, run=run.scenarios_of(), split=split), run.adapter_folder(step)],
        settings=rollout_settings(run.config, split),
        rerun=rerun,
    )
    if stage is None:
        clear_staged(run.store, StageKey(run.name, "collect_rollouts", step, split))
        return
    with stage:
        collection = _Collection(run, step, split, player, StagedGroups(stage))
        groups = collection.groups()
        missing = {key: work for key, work in groups.items() if collection.staged.read(key.group_id) is None}
        if missing:
            await serve_step(run, step, player.sampler)
        with progress(f"collect {split} rollouts", len(missing) * collection.group_size) as report:
            collection.report = report
            play = collect_group.with_options(retries=run.config.rollouts.retries)
            await asyncio.gather(*(play(collection, key, scenario) for key, scenario in missing.items()))
        collection.publish(stage, list(groups))
    clear_staged(run.store, stage.key)


@task(cache_policy=NO_CACHE, retry_delay_seconds=exponential_backoff(backoff_factor=2))
async def collect_group(collection: _Collection, key: GroupKey, scenario: Scenario) -> None:
    """Play one group and keep it. The unit of retry: its members are compared, so they go together."""
    config = collection.run.config
    trajectories = await play_group(
        partial(make_environment, config.environment),
        scenario,
        collection.player,
        config.rollouts,
        key=key,
        size=collection.group_size,
        temperature=collection.temperature,
        slots=collection.slots,
        finished=collection.count,
    )
    collection.staged.add(key.group_id, trajectories_table(trajectories))


@dataclass(eq=False)
class _Collection:
    """One step's rollouts in the making."""

    run: Run
    step: int
    split: str
    player: Player
    staged: StagedGroups
    report: Progress | None = None
    stop_reasons: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.run.config.rollouts.max_concurrency)

    @property
    def group_size(self) -> int:
        config = self.run.config
        train = self.split == "train"
        return config.rollouts.rollouts_per_group if train else config.validation.rollouts_per_scenario

    @property
    def temperature(self) -> float:
        config = self.run.config
        if self.split == "validation" and config.validation.temperature is not None:
            return config.validation.temperature
        return config.rollouts.temperature

    def groups(self) -> dict[GroupKey, Scenario]:
        """The groups of this step, in their order."""
        run, config = self.run, self.run.config
        scenarios = scenarios_from(run.store.read(SCENARIOS, run=run.scenarios_of(), split=self.split))
        if self.split == "train":
            drawn = draw_scenarios(
                scenarios, step=self.step, count=config.rollouts.groups_per_step, seed=config.seed
            )
        else:
            drawn = [(scenario, 0) for scenario in scenarios[: config.validation.max_scenarios]]
        return {
            GroupKey(run.name, self.step, self.split, scenario.scenario_id, group_no): scenario
            for scenario, group_no in drawn
        }

    def count(self, trajectory: Trajectory) -> None:
        """Take note of a finished rollout, for whoever watches."""
        self.stop_reasons[trajectory.stop_reason] += 1
        if trajectory.environment_reward is not None:
            self.rewards.append(trajectory.environment_reward)
        if self.report is not None:
            mean = sum(self.rewards) / len(self.rewards) if self.rewards else None
            note = "" if mean is None else f"reward {mean:.3f}"
            self.report.advance(self.stop_reasons.total(), note)

    def publish(self, stage: Stage, keys: list[GroupKey]) -> None:
        """Publish all groups in their order, unless too many of their rollouts failed."""
        tables = {key: table for key in keys if (table := self.staged.read(key.group_id)) is not None}
        table = pa.concat_tables(tables.values())
        failures = {
            key: [
                t
                for t in trajectories_from(group, run=key.run, step=key.step, split=key.split)
                if t.stop_reason.is_failure
            ]
            for key, group in tables.items()
        }
        failed = [t for members in failures.values() for t in members]
        tolerated = self.run.config.rollouts.max_exceptions
        unanswered = [t for t in failed if t.stop_reason is StopReason.INFERENCE_ERROR]
        if len(unanswered) == table.num_rows:
            tolerated = 0  # the sampler itself is broken: nothing here says anything about the policy
        if tolerated is not None and len(failed) > tolerated:
            for key, members in failures.items():
                if members:
                    self.staged.drop(key.group_id)
            raise RolloutError(
                f"{len(failed)} of {table.num_rows} rollouts of {stage.key} failed, more than the "
                f"{tolerated} of rollouts.max_exceptions. The first: {failed[0].stop_reason}: "
                f"{failed[0].error}. Their groups are played again when the stage is run again."
            )
        stage.publish_table(TRAJECTORIES, table, run=self.run.name, step=self.step, split=self.split)
        stage.counts.update(rollouts=table.num_rows, failed_rollouts=len(failed))


def rollout_settings(config: RunConfig, split: str) -> list[Any]:
    """Whatever decides the rollouts, beside the scenarios and the adapter."""
    settings: list[Any] = [config.seed, config.environment.model_dump(), config.model.model_dump()]
    rollouts = config.rollouts.model_dump(exclude={"max_concurrency", "retries", "max_exceptions"})
    settings.append(rollouts)
    if split == "validation":
        settings.append(config.validation.model_dump(exclude={"every", "at_start"}))
    return settings
