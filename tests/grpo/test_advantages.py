"""Properties of advantages that hold for any rewards."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.advantages import group_advantages

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


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="2 rewards came with 1 groups"):
        group_advantages([1.0, 0.0], ["a"])
