"""G2 (NeMo-RL 4161): float32 residue of equal rewards, divided by itself, became a large advantage."""

import pytest

from tasks.grpo.advantages import group_advantages


@pytest.mark.parametrize("scale", ["group_std", "batch_std", "none"])
@pytest.mark.parametrize("rewards", [[0.35] * 7, [1.0, 1.0 + 1e-7], [1e6, 1e6 + 0.01], [0.0, 0.0]])
def test_equal_rewards_get_zero_advantage(rewards, scale):
    found = group_advantages(rewards, ["g"] * len(rewards), scale)
    assert found.values.tolist() == [0.0] * len(rewards)
    assert found.zero_variance_groups == 1
