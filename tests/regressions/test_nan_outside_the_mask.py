"""L3 (SkyRL 1635): NaN at masked positions, multiplied by a mask of 0, made the whole loss NaN.

Here what is not sampled is selected out before there are any logits, and nothing is multiplied by a mask.
"""

import math
from dataclasses import replace

import torch

from tests.grpo.policies import assert_same_gradients, make_sequence, update


def test_nan_logprobs_outside_the_mask_do_not_matter(policy):
    clean = [make_sequence("a", advantage=1.0), make_sequence("b", turns=((40,),), advantage=-1.0)]
    dirty = [replace(s, logprobs=tuple(math.nan if p is None else p for p in s.logprobs)) for s in clean]
    _, theirs, _ = update(policy, clean, correction="truncated_token")
    result, ours, _ = update(policy, dirty, correction="truncated_token")
    assert math.isfinite(result.steps[0].loss)
    assert_same_gradients(ours, theirs)


def test_nan_hidden_states_outside_the_mask_do_not_matter(policy, monkeypatch):
    """Those of the policy and, by the KL term, of the reference."""
    sequence = make_sequence("a", advantage=1.0)
    predicting = torch.zeros(len(sequence.token_ids), 1, dtype=torch.bool)
    predicting[[index - 1 for index in sequence.sampled]] = True
    _, theirs, _ = update(policy, [sequence], kl_coefficient=0.1)

    decoder = type(policy.get_base_model().get_decoder())
    forward, poisoned = decoder.forward, []

    def with_nan(self, *args, **kwargs):
        found = forward(self, *args, **kwargs)
        if kwargs["input_ids"].tolist() == [list(sequence.token_ids)]:
            found.last_hidden_state = torch.where(predicting, found.last_hidden_state, math.nan)
            poisoned.append(found)
        return found

    monkeypatch.setattr(decoder, "forward", with_nan)
    result, ours, _ = update(policy, [sequence], kl_coefficient=0.1)
    assert len(poisoned) == 2
    assert math.isfinite(result.steps[0].loss)
    assert_same_gradients(ours, theirs)
