"""Stage 4: GRPO on a step's stored, scored rollouts; publishes the adapter of the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.codec import trajectories_from
from storage.errors import UpdateError
from storage.layout import StageKey, adapter_folder, data_file
from storage.schemas import SCORES, TOKEN_STATS, TRAJECTORIES, UPDATES
from storage.stages import begin_stage
from storage.store import Store
from tasks.learner import Learner
from tasks.progress import progress
from tasks.rewards.programmatic import scorer_name
from tasks.run import Run

if TYPE_CHECKING:
    from tasks.grpo.trainer import UpdateResult

EMPTY_BATCHES = 10  # in a row, and the run ends: nothing that it samples can train it


@task(cache_policy=NO_CACHE)
def initialise_policy(run: Run, learner: Learner) -> None:
    """Publish the adapter of step 0, if the run has none yet."""
    stage = begin_stage(
        run.store,
        StageKey(run.name, "initialise_policy", 0),
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
    rollouts = {"run": run.name, "step": step, "split": "train"}
    stage = begin_stage(
        run.store,
        StageKey(run.name, "update_policy", step),
        inputs=[
            data_file(TRAJECTORIES, **rollouts),
            data_file(SCORES, **rollouts, scorer=scorer),
            adapter_folder(run.name, step),
        ],
        settings=[run.config.update.model_dump(), run.config.rollouts.temperature, run.config.seed],
        rerun=rerun,
    )
    if stage is None:
        return
    with stage, progress("update the policy") as report:
        from tasks.grpo.advantages import group_advantages
        from tasks.training_data import training_sequences

        trajectories = trajectories_from(run.store.read(TRAJECTORIES, **rollouts), **rollouts)
        rewards = _rewards(run.store, scorer, **rollouts)
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
        result = learner.update(step, sequences, lambda done, total: report.advance(done, f"of {total}"))
        _publish(run, step, result, stage)
        learner.publish(stage, step + 1, parent=step)
        stage.counts.update(trajectories=len(scored), tokens=sum(row.tokens for row in result.steps))
    _refuse_to_spin(run.store, run.name, step)
