"""Play the rollouts of one group: the same scenario, several times, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.errors import RolloutError
from storage.records import GroupKey, Scenario, Trajectory
from tasks.environments.base import Environment
from tasks.episodes.episode import Player, play_episode
from tasks.settings import RolloutSettings


async def play_group(
    make_environment: Callable[[], Environment],
    scenario: Scenario,
    player: Player,
    settings: RolloutSettings,
    *,
    key: GroupKey,
    size: int,
    temperature: float,
    slots: asyncio.Semaphore,
    finished: Callable[[Trajectory], None],
) -> list[Trajectory]:
    """Play `scenario` `size` times; `slots` bounds the episodes in flight over all groups.

    Raises:
        RolloutError: the members began with different prompts, so that they cannot be compared.
    """

    async def play(sample_no: int) -> Trajectory:
        async with slots:
            trajectory = await play_episode(
                make_environment(),
                scenario,
                player,
                settings,
                key=key,
                sample_no=sample_no,
                temperature=temperature,
            )
        finished(trajectory)
        return trajectory

    async with asyncio.TaskGroup() as group:
        members = [group.create_task(play(sample_no)) for sample_no in range(size)]
    trajectories = [member.result() for member in members]
    digests = {t.prompt_digest for t in trajectories if t.prompt_digest}
    if len(digests) > 1:
        raise RolloutError(
            f"Scenario {scenario.scenario_id!r} began with {len(digests)} different prompts in one group. "
            "The environment's reset() must depend on the scenario alone: put what it draws into the payload."
        )
    return trajectories
