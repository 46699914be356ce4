"""Rewards by code: a function of a trajectory and its scenario, or the environment's own reward."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.codec import to_json
from storage.records import JudgeCall, Scenario, Score, Trajectory


@dataclass(frozen=True)
class Reward:
    """What a reward function may return in place of a float. `value` None means that it could not tell."""

    value: float | None
    components: Mapping[str, float] = field(default_factory=dict)
    explanation: str | None = None


RewardFunction = Callable[..., float | Reward | Awaitable[float | Reward]]


@dataclass(frozen=True)
class ProgrammaticScorer:
    """Calls `function(trajectory, scenario, **args)` for each trajectory, sync or async."""

    name: str
    function: RewardFunction
    args: Mapping[str, Any]
    judge_calls: Sequence[JudgeCall] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the name, the arguments and the function's source: what the reward depended on."""
        source = inspect.getsource(self.function)
        return hashlib.sha256(to_json([self.name, dict(self.args), source]).encode()).hexdigest()

    async def score(
        self, trajectories: Sequence[Trajectory], scenarios: Mapping[str, Scenario]
    ) -> list[Score]:
        return list(
            await asyncio.gather(*(self._score(t, scenarios[t.key.scenario_id]) for t in trajectories))
        )

    async def _score(self, trajectory: Trajectory, scenario: Scenario) -> Score:
        if trajectory.stop_reason.is_failure:
            return self._unscored(trajectory, f"the rollout failed: {trajectory.stop_reason}")
        try:
            result = self.function(trajectory, scenario, **self.args)
            found = await result if inspect.isawaitable(result) else result
        except Exception as error:  # the user's code; its fault is stored with the row it fell on
            return self._unscored(trajectory, f"{type(error).__name__}: {error}")
        reward = found if isinstance(found, Reward) else Reward(found)
        if reward.value is None:
            return self._unscored(trajectory, reward.explanation or "the scorer gave no reward")
        if not math.isfinite(reward.value):
            return self._unscored(trajectory, f"the reward is {reward.value}, not a finite number")
        return Score(
            trajectory.trajectory_id,
            self.name,
            float(reward.value),
            components=reward.components,
            explanation=reward.explanation,
        )

    def _unscored(self, trajectory: Trajectory, error: str) -> Score:
        return Score(trajectory.trajectory_id, self.name, None, error=error)


def environment_reward(trajectory: Trajectory, scenario: Scenario) -> Reward:
    """The sum of the rewards that the environment gave during the episode."""
    value = trajectory.environment_reward
    return Reward(value, explanation=None if value is not None else "the environment gave no reward")
