"""G1 (verl, SkyRL): a group with one usable rollout passed its raw reward on as the advantage."""

import pytest

from tasks.grpo.advantages import group_advantages


@pytest.mark.parametrize("scale", ["group_std", "batch_std", "none"])
@pytest.mark.parametrize("rewards", [[0.7], [0.7, None, None]])
def test_group_of_one_gets_zero_advantage(rewards, scale):
    found = group_advantages([*rewards, 1.0, 0.0], ["one"] * len(rewards) + ["two", "two"], scale)
    assert found.values[0] == 0
    assert not found.usable[0]
    assert (found.groups_of_one, found.zero_variance_groups) == (1, 1)
