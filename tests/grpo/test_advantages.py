"""Advantages: by hand for each scale, and what must never come out of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.advantages import group_advantages

REWARDS = [1.0, 0.0, 0.5, 10.0, 30.0, 20.0]
GROUPS = ["a"] * 3 + ["b"] * 3


def test_each_scale_by_hand():
    """G3 (TRL 3992, prime-rl 1188): two groups of different spread, so that mixing the scales shows."""
    spread = math.sqrt(sum((r - 61.5 / 6) ** 2 for r in REWARDS) / 5)
    centred = [0.5, -0.5, 0.0, -10.0, 10.0, 0.0]
    assert group_advantages(REWARDS, GROUPS, "none").values == pytest.approx(centred)
    assert group_advantages(REWARDS, GROUPS, "group_std").values == pytest.approx([1, -1, 0, -1, 1, 0])
    assert group_advantages(REWARDS, GROUPS, "batch_std").values == pytest.approx(
        [c / spread for c in centred]
    )


def test_a_lost_rollout_leaves_its_group_as_if_it_had_not_been():
    """G6 (verl 6452)."""
    found = group_advantages([1.0, None, 0.0], ["a"] * 3)
    alone = group_advantages([1.0, 0.0], ["a"] * 2)
    assert found.values == pytest.approx([alone.values[0], 0.0, alone.values[1]])
    assert (found.unscored, found.usable.tolist()) == (1, [True, False, True])


def test_zero_is_a_reward():
    """G5 (OpenRLHF 1219): 0.0 was taken as missing."""
    found = group_advantages([0.0, 0.0, 1.0], ["a"] * 3)
    assert found.unscored == 0
    assert found.values[0] < 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused(bad):
    """G4 (TRL 5902): scorers store null for it, so that it cannot come here unnoticed."""
    with pytest.raises(ValueError, match="NaN or infinite"):
        group_advantages([1.0, bad], ["a", "a"])


rewards = st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=1, max_size=12)


@given(rewards, st.sampled_from(["group_std", "batch_std", "none"]))
def test_advantages_of_a_group_sum_to_zero_and_are_finite(values, scale):
    found = group_advantages(values, ["a"] * len(values), scale)
    assert all(map(math.isfinite, found.values))
    assert sum(found.values) == pytest.approx(0, abs=1e-6 * max(1.0, *map(abs, found.values)))
    assert all(v == 0 for v, u in zip(found.values, found.usable, strict=True) if not u)


@given(rewards, st.floats(0.1, 10), st.floats(-100, 100))
def test_group_std_does_not_depend_on_the_unit_of_the_reward(values, factor, shift):
    values = [None if v is None else round(v) for v in values]  # far from the tolerance
    moved = [None if v is None else v * factor + shift for v in values]
    first, second = (group_advantages(v, ["a"] * len(v)).values for v in (values, moved))
    assert second == pytest.approx(first, abs=1e-4)
