"""Importance weights for how the policy that sampled differs from the one that trains. Never differentiated.

Samplers compute in other kernels and types than trainers, and stored rollouts may come from an older policy.
Truncated: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training" (2025).
Masked: IcePop, Ling Team, "Every step evolves" (arXiv 2510.18855), section on IcePop.
A sequence here is one segment, the span that was sampled from one prefix.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Correction = Literal["none", "truncated_token", "truncated_sequence", "masked_token", "masked_sequence"]


def correction_weights(
    old: Tensor,
    sampler: Tensor,
    sequences: Tensor,
    correction: Correction,
    high: float,
    low: float = 0.0,
) -> Tensor:
    """(tokens,) weights exp(old - sampler) of each token, or the product of them over its sequence.

    Args:
        old: log-probabilities under the trainer's policy before the update's first step.
        sampler: the sampler's own.
        sequences: (tokens,) int64, which sequence each token belongs to.
        correction: `truncated_…` moves weights into [low, high]; `masked_…` makes them 0 outside of it.
    """
    difference = (old - sampler).detach()
    if correction == "none":
        return torch.ones_like(difference)
    treatment, level = correction.split("_")
    if level == "sequence":
        sums = difference.new_zeros(int(sequences.max()) + 1).index_add(0, sequences, difference)
        difference = sums[sequences]
    weights = difference.exp()
    if treatment == "truncated":
        return weights.clamp(low, high)
    return torch.where((weights >= low) & (weights <= high), weights, torch.zeros_like(weights))
