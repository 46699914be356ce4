"""Importance weights for what the sampler's numbers differ from the trainer's: "Your efficient RL framework
secretly brings you off-policy RL training" (Yao et al., 2025). Never differentiated.
"""

from __future__ import annotations

import torch
from torch import Tensor


def correction_weights(
    old_logprobs: Tensor, sampler_logprobs: Tensor, sequences: Tensor, mode: str, bound: float
) -> Tensor:
    """(tokens,) weights exp(trainer - sampler), per token or per sequence, truncated or masked at `bound`.

    Args:
        sequences: (tokens,) int64, which sequence each token belongs to.
        mode: none, truncated_token, truncated_sequence, masked_token or masked_sequence.
    """
    difference = (old_logprobs - sampler_logprobs).detach()
    if mode == "none":
        return torch.ones_like(difference)
    treatment, level = mode.split("_")
    if level == "sequence":
        sums = difference.new_zeros(int(sequences.max()) + 1).index_add(0, sequences, difference)
        difference = sums[sequences]
    weights = difference.exp()
    if treatment == "truncated":
        return weights.clamp(max=bound)
    return torch.where(weights <= bound, weights, torch.zeros_like(weights))
