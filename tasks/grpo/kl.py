"""Estimators of the KL divergence from the reference policy, of one sampled token each.

Source: Schulman, "Approximating KL divergence" (2020). With d = log p - log p_ref: k1 = d, unbiased, of
either sign; k2 = d^2 / 2, biased, its gradient is that of the KL; k3 = exp(-d) - 1 + d, unbiased and never
negative.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    return logprobs - reference


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    return (logprobs - reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    difference = logprobs - reference
    return (-difference).exp() - 1 + difference


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
