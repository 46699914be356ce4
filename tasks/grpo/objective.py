"""What is minimised, put together from its named parts: surrogate, correction, KL term, entropy bonus."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tasks.grpo.corrections import correction_weights
from tasks.grpo.kl import ESTIMATORS
from tasks.grpo.losses import LOSSES, Clip
from tasks.settings import UpdateSettings


@dataclass(frozen=True)
class Before:
    """What was known of a row's tokens before the first optimiser step, all of shape (tokens,).

    Attributes:
        old: log-probabilities under the policy as it was.
        reference: the same under the reference policy, where the KL term asks for it.
        advantages: of each token, less the KL term where that is placed in the advantage.
    """

    old: Tensor
    reference: Tensor | None
    advantages: Tensor


def token_advantages(
    advantages: Tensor, old: Tensor, reference: Tensor | None, settings: UpdateSettings
) -> Tensor:
    """(tokens,) advantages, less coefficient x KL estimate of each token where KL is placed there."""
    if reference is None or settings.kl_placement == "loss":
        return advantages
    return advantages - settings.kl_coefficient * ESTIMATORS[settings.kl_estimator](old, reference)


def token_losses(
    logprobs: Tensor,
    entropies: Tensor,
    sampler: Tensor,
    sequences: Tensor,
    before: Before,
    settings: UpdateSettings,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(tokens,) what is minimised in each token, and what `step_metrics` wants to know of it."""
    clip = Clip(settings.clip_low, settings.clip_high, settings.dual_clip)
    surrogate = LOSSES[settings.loss](logprobs, before.old, before.advantages, sequences, clip)
    correction = correction_weights(
        before.old,
        sampler,
        sequences,
        settings.correction,
        settings.correction_bound,
        settings.correction_low,
    )
    losses = surrogate.values * correction
    seen = {
        "entropy": entropies.detach(),
        "low": surrogate.low,
        "high": surrogate.high,
        "correction": correction,
        "difference": before.old - sampler,
    }
    if before.reference is not None:
        kl = ESTIMATORS[settings.kl_estimator](logprobs, before.reference)
        seen["kl"] = kl.detach()
        if settings.kl_placement == "loss":
            losses = losses + settings.kl_coefficient * kl
    if settings.entropy_coefficient:
        losses = losses - settings.entropy_coefficient * entropies
    return losses, seen
