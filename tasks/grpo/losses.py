"""Surrogate losses by name: values of single tokens, whose weighted sum is minimised.

Each takes log-probabilities under the policy in training (`logprobs`) and under the policy that the update
started from (`old`), the `advantages`, and the number of the sequence that each token belongs to, all of
shape (tokens,). With r = exp(logprobs - old), or its geometric mean over a sequence in GSPO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Clip:
    """Ratios are clipped to [1 - low, 1 + high], and to `dual` at most where advantages are negative."""

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True)
class Surrogate:
    """What a loss says of each token, all of shape (tokens,).

    Attributes:
        values: what is minimised.
        low, high: bool, where the ratio lies below or above its bound and the bound is what counts.
    """

    values: Tensor
    low: Tensor
    high: Tensor


Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Clip], Surrogate]


def clipped(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Surrogate:
    """-min(r A, clip(r) A): PPO (arXiv 1707.06347), equation 7."""
    return _clipped((logprobs - old).exp(), advantages, clip)


def gspo(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Surrogate:
    """The same with the geometric mean of a sequence's ratios, and token-wise gradients:
    GSPO (arXiv 2507.18071), equations 13 and 14."""
    mean = sequence_means(logprobs - old, sequences).detach()
    return _clipped((mean + logprobs - logprobs.detach()).exp(), advantages, clip)


def cispo(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Surrogate:
    """-clip(r) A log p, the clipped ratio not differentiated: MiniMax-M1 (arXiv 2506.13585), equations 4, 5.
    No token loses its gradient, so the bounds limit its weight alone."""
    ratio = (logprobs - old).detach().exp()
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    return Surrogate(-bounded * advantages * logprobs, ratio < 1 - clip.low, ratio > 1 + clip.high)


def reinforce(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Surrogate:
    """-A log p: Williams (1992). Knows no ratio, so it is for one optimiser step on fresh rollouts."""
    nowhere = torch.zeros_like(advantages, dtype=torch.bool)
    return Surrogate(-advantages * logprobs, nowhere, nowhere)


LOSSES: dict[str, Loss] = {
    "grpo": clipped,
    "dapo": clipped,
    "dr_grpo": clipped,
    "gspo": gspo,
    "cispo": cispo,
    "reinforce": reinforce,
}


def sequence_means(values: Tensor, sequences: Tensor) -> Tensor:
    """(tokens,) for each token the mean of `values` over its sequence."""
    count = int(sequences.max()) + 1
    sums = values.new_zeros(count).index_add(0, sequences, values)
    lengths = values.new_zeros(count).index_add(0, sequences, torch.ones_like(values))
    return (sums / lengths)[sequences]


def _clipped(ratio: Tensor, advantages: Tensor, clip: Clip) -> Surrogate:
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    gain = torch.minimum(ratio * advantages, bounded * advantages)
    low = (ratio < 1 - clip.low) & (advantages < 0)
    high = (ratio > 1 + clip.high) & (advantages > 0)
    if clip.dual is not None:
        # arXiv 1912.09729, equation 3: a ratio far above 1 must not let one bad token's loss explode.
        gain = torch.where(advantages < 0, torch.maximum(gain, clip.dual * advantages), gain)
        high = high | ((ratio > clip.dual) & (advantages < 0))
    return Surrogate(-gain, low, high)
