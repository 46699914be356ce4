"""G6 (verl 6452): a rollout lost to infrastructure counted as a reward in its group's baseline."""

import pytest

from tasks.grpo.advantages import group_advantages


@pytest.mark.parametrize("scale", ["group_std", "batch_std", "none"])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_lost_rollout_leaves_the_baseline(scale, where):
    rewards = [1.0, 0.0]
    alone = group_advantages(rewards, ["g"] * 2, scale).values.tolist()
    rewards.insert(where, None)
    found = group_advantages(rewards, ["g"] * 3, scale)
    assert found.values[where] == 0
    assert [v for n, v in enumerate(found.values.tolist()) if n != where] == pytest.approx(alone)
    assert found.unscored == 1
