"""Policies for rollouts that were cut at their length limit."""

import pytest

from tasks.grpo.advantages import group_advantages
from tasks.grpo.overlong import length_penalty, overlong_rewards

REWARDS, LENGTHS, CUT = [1.0, 0.5, None, 0.0], [5, 10, 10, 8], [False, True, True, False]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("keep", [1.0, 0.5, None, 0.0]),
        ("mask", [1.0, None, None, 0.0]),
        ("zero", [1.0, 0.0, None, 0.0]),
        ("ramp", [1.0, -0.5, None, -0.5]),
    ],
)
def test_each_policy_by_hand(policy, expected):
    options = {"limit": 10, "buffer": 4} if policy == "ramp" else {}
    assert overlong_rewards(REWARDS, LENGTHS, CUT, policy, **options) == expected


def test_a_masked_rollout_leaves_baseline_and_loss():
    masked = overlong_rewards(REWARDS, LENGTHS, CUT, "mask")
    found = group_advantages(masked, ["g"] * 4, "none")
    assert found.values.tolist() == [0.5, 0, 0, -0.5]
    assert found.usable.tolist() == [True, False, False, True]


@pytest.mark.parametrize(("length", "penalty"), [(0, 0), (6, 0), (7, -0.25), (10, -1), (99, -1)])
def test_the_penalty_is_a_ramp(length, penalty):
    assert length_penalty(length, limit=10, buffer=4) == penalty


@pytest.mark.parametrize(
    "options", [{}, {"limit": 10}, {"limit": 10, "buffer": 0}, {"limit": 3, "buffer": 4}]
)
def test_a_ramp_without_its_ends_is_refused(options):
    with pytest.raises(ValueError, match="ramp needs"):
        overlong_rewards(REWARDS, LENGTHS, CUT, "ramp", **options)
