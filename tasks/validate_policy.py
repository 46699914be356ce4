"""Stage 5: play and score the held-out scenarios with the adapter of a step. Nothing here ever trains."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.collect_rollouts import collect_rollouts
from tasks.episodes.episode import Player
from tasks.run import Run
from tasks.score_rollouts import score_rollouts


@task(cache_policy=NO_CACHE)
async def validate_policy(run: Run, step: int, player: Player, *, rerun: bool = False) -> None:
    """Publish trajectories and scores of the validation split, by the same stages as in training."""
    await collect_rollouts(run, step, player, split="validation", rerun=rerun)
    await score_rollouts(run, step, split="validation", rerun=rerun)
