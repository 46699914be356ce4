"""L5 (TRL 4159, 6789): the sampler divided logits by the temperature and the trainer did not, so that the
first importance ratio was far from 1."""

from dataclasses import replace

import pytest

from tests.grpo import reference
from tests.grpo.policies import update


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_temperature_is_applied_by_the_trainer(policy, batch, temperature):
    sampled = []
    for sequence in batch:
        found = iter(reference.token_logprobs(policy, sequence, temperature=temperature).tolist())
        sampled.append(replace(sequence, logprobs=tuple(next(found) if m else None for m in sequence.mask)))
    result, *_ = update(policy, sampled, temperature=temperature, correction="truncated_token")
    for stats in result.token_stats:
        assert stats.ratios == pytest.approx([1.0] * len(stats.ratios), abs=1e-6)
    assert result.steps[0].metrics["sampling/sampling_logp_difference/max"] < 1e-6
