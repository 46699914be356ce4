"""Advantages: by hand for each baseline, and properties that hold for any rewards."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.advantages import group_advantages
from tasks.grpo.components import component_advantages

rewards = st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=1, max_size=12)
baselines = st.sampled_from(["group_mean", "leave_one_out"])


@given(rewards, st.sampled_from(["group_std", "batch_std", "none"]), baselines)
def test_advantages_of_a_group_sum_to_zero_and_are_finite(values, scale, baseline):
    found = group_advantages(values, ["a"] * len(values), scale, baseline)
    assert all(map(math.isfinite, found.values))
    assert sum(found.values) == pytest.approx(0, abs=1e-6 * max(1.0, *map(abs, found.values)))
    assert all(v == 0 for v, u in zip(found.values, found.usable, strict=True) if not u)


@given(rewards, st.floats(0.1, 10), st.floats(-100, 100))
def test_group_std_does_not_depend_on_the_unit_of_the_reward(values, factor, shift):
    values = [None if v is None else round(v) for v in values]  # far from the tolerance
    moved = [None if v is None else v * factor + shift for v in values]
    first, second = (group_advantages(v, ["a"] * len(v)).values for v in (values, moved))
    assert second == pytest.approx(first, abs=1e-4)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3) | st.none()), min_size=1), st.randoms())
def test_order_of_rollouts_does_not_matter(rollouts, random):
    def by_rollout(order):
        names, values = [rollouts[n][0] for n in order], [rollouts[n][1] for n in order]
        return dict(zip(order, group_advantages(values, names).values, strict=True))

    order = list(range(len(rollouts)))
    shuffled = random.sample(order, len(order))
    assert by_rollout(shuffled) == pytest.approx(by_rollout(order))


def test_leave_one_out_is_the_mean_of_the_others():
    values = [1.0, 0.0, 0.5, 2.0]
    expected = [v - statistics.mean(values[:n] + values[n + 1 :]) for n, v in enumerate(values)]
    found = group_advantages(values, ["a"] * 4, "none", "leave_one_out")
    assert found.values == pytest.approx(expected)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="2 rewards came with 1 groups"):
        group_advantages([1.0, 0.0], ["a"])


def test_components_are_normalised_one_by_one():
    """A component of large spread does not drown the other, and the sum is scaled over the batch."""
    groups = ["a"] * 3 + ["b"] * 3
    components = {"right": [0, 0, 1, 1, 0, 1], "format": [0, 100, 100, 0, 0, 100]}
    weights = {"right": 1.0, "format": 0.5}
    parts = {}
    for name, values in components.items():
        parts[name] = []
        for three in (values[:3], values[3:]):
            mean, spread = statistics.mean(three), statistics.stdev(three)
            parts[name] += [(v - mean) / spread for v in three]
    total = [parts["right"][n] + 0.5 * parts["format"][n] for n in range(6)]
    mean, spread = statistics.mean(total), statistics.stdev(total)
    found = component_advantages(components, groups, weights)
    assert found.values == pytest.approx([(t - mean) / spread for t in total])
    assert found.usable.all()


def test_a_rollout_that_lacks_a_component_is_unscored():
    found = component_advantages({"x": [1, 0, 1, 0], "y": [None, 1, 0, 0]}, ["a"] * 4, {"x": 1.0, "y": 1.0})
    rest = component_advantages({"x": [0, 1, 0], "y": [1, 0, 0]}, ["a"] * 3, {"x": 1.0, "y": 1.0})
    assert found.values == pytest.approx([0.0, *rest.values])
    assert (found.unscored, found.usable.tolist()) == (1, [False, True, True, True])


def test_equal_components_give_zero():
    found = component_advantages({"x": [1, 1], "y": [2, 2]}, ["a"] * 2, {"x": 1.0, "y": 1.0})
    assert found.values.tolist() == [0, 0]
    assert (found.zero_variance_groups, found.usable.any()) == (1, False)


def test_components_without_weights_are_refused():
    with pytest.raises(ValueError, match="weights for"):
        component_advantages({"x": [1.0]}, ["a"], {"y": 1.0})
