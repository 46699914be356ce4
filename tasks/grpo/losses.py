"""Surrogate losses by name: per-token values whose weighted sum is minimised. One formula each.

All take log-probabilities under the policy in training (`logprobs`), under the policy that the update started
from (`old_logprobs`), and advantages, each (tokens,) float32, and return (tokens,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Clip:
    """The range [1 - low, 1 + high] of importance ratios within which a token keeps its gradient."""

    low: float
    high: float

    def __call__(self, ratio: Tensor) -> Tensor:
        return ratio.clamp(1 - self.low, 1 + self.high)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    """-min(r A, clip(r) A): PPO (arXiv 1707.06347), equation 7."""
    return -torch.minimum(ratio * advantages, clip(ratio) * advantages)


def token_ratio(logprobs: Tensor, old_logprobs: Tensor, sequences: Tensor) -> Tensor:
    """Each token's own importance ratio: GRPO (arXiv 2402.03300), equation 3."""
    return (logprobs - old_logprobs).exp()


def sequence_ratio(logprobs: Tensor, old_logprobs: Tensor, sequences: Tensor) -> Tensor:
    """Geometric mean of a sequence's ratios, with gradients token by token: GSPO (arXiv 2507.18071), equation 14.

    Args:
        sequences: (tokens,) int64, which sequence each token belongs to.
    """
    difference = logprobs - old_logprobs
    count = int(sequences.max()) + 1
    sums = difference.new_zeros(count).index_add(0, sequences, difference)
    lengths = difference.new_zeros(count).index_add(0, sequences, torch.ones_like(difference))
    mean = (sums / lengths)[sequences].detach()
    return (mean + logprobs - logprobs.detach()).exp()


def cispo(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip
) -> Tensor:
    """The clipped ratio weighs the gradient and is not differentiated: MiniMax-M1 (arXiv 2506.13585), equation 4."""
    ratio = token_ratio(logprobs, old_logprobs, sequences).detach().clamp(max=1 + clip.high)
    return -ratio * advantages * logprobs


def reinforce(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip
) -> Tensor:
    """-A log p: Williams (1992). Takes no importance ratio into account."""
    return -advantages * logprobs


def _clipped(ratio_of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def loss(
        logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, sequences: Tensor, clip: Clip
    ) -> Tensor:
        return clipped_surrogate(ratio_of(logprobs, old_logprobs, sequences), advantages, clip)

    return loss


LOSSES: dict[str, Callable[..., Tensor]] = {
    "grpo": _clipped(token_ratio),
    "gspo": _clipped(sequence_ratio),
    "cispo": cispo,
    "reinforce": reinforce,
}
