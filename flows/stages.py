"""Each stage as a flow of its own: the same tasks as in the chain, for one step of a stored run.

A stage run by itself does its work again and replaces what it published; the old file is kept.
"""

from __future__ import annotations

from prefect import flow

from storage.layout import SPLITS
from tasks import collect_rollouts as collect
from tasks import generate_scenarios as generate
from tasks import score_rollouts as score
from tasks import update_policy as update
from tasks import validate_policy as validate
from tasks.learner import Learner
from tasks.policy import open_player
from tasks.run import Run
from tasks.settings import RewardSettings


@flow(name="generate_scenarios", flow_run_name="scenarios of {run}")
def generate_scenarios(run: str, store: str = ".rollmill/store") -> None:
    """Make or load the scenarios of a run again.

    Args:
        run: Name of the run.
        store: Folder of the store.
    """
    it = Run.load(store, run)
    with it.store.writer(run):
        generate.generate_scenarios(it, rerun=True)


@flow(name="collect_rollouts", flow_run_name="rollouts of {run}, step {step}")
async def collect_rollouts(
    run: str, step: int, split: str = SPLITS[0], store: str = ".rollmill/store"
) -> None:
    """Play the scenarios of a step with its adapter.

    Args:
        run: Name of the run.
        step: Training step, from 0 on.
        split: train or validation.
        store: Folder of the store.
    """
    it = Run.load(store, run)
    with it.store.writer(run):
        async with open_player(it) as player:
            await player.sampler.ready()
            await collect.collect_rollouts(it, step, player, split=split, rerun=True)


@flow(name="score_rollouts", flow_run_name="scores of {run}, step {step}")
async def score_rollouts(
    run: str,
    step: int,
    split: str = SPLITS[0],
    reward: RewardSettings | None = None,
    store: str = ".rollmill/store",
) -> None:
    """Score a step's stored rollouts, by the run's own scorer or by another one.

    Args:
        run: Name of the run.
        step: Training step, from 0 on.
        split: train or validation.
        reward: Another scorer; null is the run's own.
        store: Folder of the store.
    """
    it = Run.load(store, run)
    with it.store.writer(run):
        await score.score_rollouts(it, step, split=split, reward=reward, rerun=True)


@flow(name="update_policy", flow_run_name="update of {run}, step {step}")
def update_policy(run: str, step: int, store: str = ".rollmill/store") -> None:
    """Train the adapter of `step` on its stored rollouts; publishes the adapter of `step + 1`.

    Args:
        run: Name of the run.
        step: Training step, from 0 on.
        store: Folder of the store.
    """
    it = Run.load(store, run)
    with it.store.writer(run):
        update.update_policy(it, step, Learner(it), rerun=True)


@flow(name="validate_policy", flow_run_name="validation of {run}, step {step}")
async def validate_policy(run: str, step: int, store: str = ".rollmill/store") -> None:
    """Play and score the held-out scenarios with the adapter of a step.

    Args:
        run: Name of the run.
        step: Step of the adapter.
        store: Folder of the store.
    """
    it = Run.load(store, run)
    with it.store.writer(run):
        async with open_player(it) as player:
            await player.sampler.ready()
            await validate.validate_policy(it, step, player, rerun=True)


STAGES = {
    flow.name: flow
    for flow in (generate_scenarios, collect_rollouts, score_rollouts, update_policy, validate_policy)
}
