"""G5 (OpenRLHF 1219): a reward of 0.0 was taken as missing."""

import pytest

from tasks.grpo.advantages import group_advantages


@pytest.mark.parametrize("zero", [0.0, -0.0, 0])
def test_reward_of_zero_is_a_reward(zero):
    found = group_advantages([zero, 1.0], ["g"] * 2, "none")
    assert found.values.tolist() == [-0.5, 0.5]
    assert (found.unscored, found.usable.tolist()) == (0, [True, True])
