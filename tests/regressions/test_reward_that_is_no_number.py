"""G4 (TRL 5902): a NaN reward made the mean of its group NaN, and every advantage with it.

Scorers store null for it, with the error. What comes as null leaves mean and spread; what still comes as NaN
or infinite is refused.
"""

import math

import pytest

from tasks.grpo.advantages import group_advantages


@pytest.mark.parametrize("scale", ["group_std", "batch_std", "none"])
def test_an_unscored_rollout_leaves_mean_and_spread(scale):
    found = group_advantages([1.0, None, 0.0], ["g"] * 3, scale)
    pair = group_advantages([1.0, 0.0], ["g"] * 2, scale)
    assert found.values.tolist() == pytest.approx([pair.values[0], 0.0, pair.values[1]])
    assert found.usable.tolist() == [True, False, True]
    assert found.unscored == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_reward_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="NaN or infinite"):
        group_advantages([1.0, bad, 0.0], ["g"] * 3)
