"""L7 (SkyRL 1507): in a trajectory of several turns, tool text between them was trained on, or only the last
turn was."""

import pytest

from tests.grpo import reference
from tests.grpo.policies import assert_same_gradients, make_sequence, update


def test_only_sampled_tokens_carry_the_advantage(policy):
    sequence = make_sequence(
        "x", turns=((20,), (21, 22), (23,)), between=(30, 31, 32), advantage=0.5, offset=7
    )
    result, ours, _ = update(policy, [sequence])
    [stats] = result.token_stats
    # prompt 10 11 12, 20, tool text, 21 22, tool text, 23
    assert stats.positions == [7 + index for index in (3, 7, 8, 12)]
    assert stats.advantages == [0.5] * 4
    assert result.steps[0].tokens == 4
    expected = reference.loss(policy, [sequence])
    assert result.steps[0].loss == pytest.approx(expected.item(), abs=1e-6)
    assert_same_gradients(ours, reference.gradients(policy, expected)[0])
