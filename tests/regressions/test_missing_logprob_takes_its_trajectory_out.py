"""L6 (TRL 5001): a sampled token without a log-probability shifted those of the others, or became 0."""

import math
from dataclasses import replace

import pytest

from tests.grpo.policies import assert_same_gradients, make_sequence, update


@pytest.mark.parametrize("hole", [None, math.nan, -math.inf])
def test_missing_logprob_takes_its_trajectory_out(policy, batch, hole):
    last = batch[0].sampled[-1]
    holed = replace(batch[0], logprobs=(*batch[0].logprobs[:last], hole, *batch[0].logprobs[last + 1 :]))
    result, ours, _ = update(policy, [holed, *batch[1:]])
    _, theirs, _ = update(policy, batch[1:])
    assert result.steps[0].metrics["missing_logprobs"] == 1
    assert result.steps[0].trajectories == 3
    assert_same_gradients(ours, theirs)


def test_all_segments_of_that_trajectory_go(policy, batch):
    holed = make_sequence("x", turns=((20,),), logprobs=(None,) * 4)
    later = make_sequence("x", prompt=(60, 61), turns=((22, 23),), offset=4)
    result, ours, _ = update(policy, [holed, later, *batch])
    _, theirs, _ = update(policy, batch)
    assert result.steps[0].metrics["missing_logprobs"] == 1
    assert "x" not in {stats.trajectory_id for stats in result.token_stats}
    assert_same_gradients(ours, theirs)
