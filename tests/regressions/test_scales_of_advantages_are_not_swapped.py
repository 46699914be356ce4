"""G3 (TRL 3992, prime-rl 1188): scaling by the group's spread and by the batch's were swapped."""

import math

import pytest

from tasks.grpo.advantages import group_advantages

REWARDS = [1.0, 0.0, 0.5, 10.0, 30.0, 20.0]
GROUPS = ["narrow"] * 3 + ["wide"] * 3
BATCH_STD = math.sqrt(sum((reward - 61.5 / 6) ** 2 for reward in REWARDS) / 5)
CENTRED = [0.5, -0.5, 0.0, -10.0, 10.0, 0.0]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("none", CENTRED),
        ("group_std", [1.0, -1.0, 0.0, -1.0, 1.0, 0.0]),  # the sample deviations are 0.5 and 10
        ("batch_std", [centred / BATCH_STD for centred in CENTRED]),
    ],
)
def test_scales_of_advantages_are_not_swapped(scale, expected):
    assert group_advantages(REWARDS, GROUPS, scale).values == pytest.approx(expected, abs=1e-12)
