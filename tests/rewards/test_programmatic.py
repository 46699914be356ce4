"""Rewards by code: what is unscored is null with its reason, and 0.0 is a reward."""

import math
from datetime import UTC, datetime

import pytest

from storage.records import GroupKey, Scenario, StopReason, Trajectory
from tasks.rewards.programmatic import ProgrammaticScorer, Reward, environment_reward
from tasks.rewards.scorers import make_scorer
from tasks.settings import RewardSettings


def trajectory(stop_reason=StopReason.COMPLETED, **fields) -> Trajectory:
    key = GroupKey("r", 0, "train", "s", 0)
    now = datetime.now(UTC)
    return Trajectory(
        **{
            "key": key,
            "sample_no": 0,
            "policy_version": 0,
            "messages": (),
            "token_ids": (),
            "mask": (),
            "logprobs": (),
            "segment_starts": (),
            "turns": (),
            "prompt_digest": "d",
            "stop_reason": stop_reason,
            "started_at": now,
            "seconds": 0.0,
            "temperature": 1.0,
            **fields,
        }
    )


def constant(trajectory, scenario, value):
    return value


async def score(function, trajectory_=None, **args):
    scorer = ProgrammaticScorer("test", function, args)
    [found] = await scorer.score([trajectory_ or trajectory()], {"s": Scenario("s", {"answer": 4})})
    return found


async def test_a_reward_of_zero_is_a_reward():
    found = await score(lambda trajectory, scenario: 0.0)
    assert (found.reward, found.error) == (0.0, None)


async def test_components_and_explanation_are_kept():
    def reward(trajectory, scenario):
        return Reward(0.5, {"format": 1.0}, "half right")

    found = await score(reward)
    assert (found.reward, found.components, found.explanation) == (0.5, {"format": 1.0}, "half right")


async def test_an_async_function_with_arguments_and_scenario():
    async def reward(trajectory, scenario, factor):
        return scenario.payload["answer"] * factor

    assert (await score(reward, factor=2)).reward == 8.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_reward_that_is_no_number_is_the_scorers_error(value):
    found = await score(lambda trajectory, scenario: value)
    assert found.reward is None
    assert "not a finite number" in found.error


async def test_a_scorer_that_raises_leaves_its_row_unscored():
    def reward(trajectory, scenario):
        raise KeyError("x")

    found = await score(reward)
    assert (found.reward, found.error) == (None, "KeyError: 'x'")


async def test_a_failed_rollout_is_not_scored_at_all():
    def reward(trajectory, scenario):
        raise AssertionError("called")

    found = await score(reward, trajectory(StopReason.TIMEOUT))
    assert (found.reward, found.error) == (None, "the rollout failed: timeout")


async def test_no_reward_from_the_environment_is_null():
    assert (await score(environment_reward)).reward is None
    assert (await score(environment_reward, trajectory(environment_reward=0.0))).reward == 0.0


def test_the_digest_changes_with_the_arguments():
    settings = [
        RewardSettings(scorer="tests.rewards.test_programmatic:constant", args={"value": n}) for n in (1, 2)
    ]
    first, second = (make_scorer(s).digest for s in settings)
    assert first != second
