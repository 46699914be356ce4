"""Surrogate losses by name: values of single tokens, whose weighted sum is minimised.

Each takes log-probabilities under the policy in training (`logprobs`) and under the policy that the update
started from (`old`), the `advantages`, and the number of the sequence that each token belongs to, all of
shape (tokens,), and returns (tokens,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Clip:
    """Importance ratios are clipped to [1 - low, 1 + high]."""

    low: float
    high: float


Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Clip], Tensor]


def clipped(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Tensor:
    """-min(r A, clip(r) A) with the ratio r of each token: PPO (arXiv 1707.06347), equation 7."""
    return _surrogate((logprobs - old).exp(), advantages, clip)


def gspo(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Tensor:
    """The same with the geometric mean of a sequence's ratios, and token-wise gradients:
    GSPO (arXiv 2507.18071), equation 14."""
    mean = sequence_means(logprobs - old, sequences).detach()
    return _surrogate((mean + logprobs - logprobs.detach()).exp(), advantages, clip)


def cispo(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Tensor:
    """-r' A log p, where r' is clipped and not differentiated: MiniMax-M1 (arXiv 2506.13585), equation 4."""
    ratio = (logprobs - old).detach().exp().clamp(1 - clip.low, 1 + clip.high)
    return -ratio * advantages * logprobs


def reinforce(logprobs: Tensor, old: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip) -> Tensor:
    """-A log p: Williams (1992). Knows no ratio, so it is for one optimiser step on fresh rollouts."""
    return -advantages * logprobs


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


def _surrogate(ratio: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    return -torch.minimum(ratio * advantages, bounded * advantages)
