"""Numbers of one optimiser step, each over all of its sampled tokens at once, so that how the step was cut
into rows or over processes does not show. Names are TRL's where it has one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

MEANS = {
    "entropy": "entropy",
    "kl": "kl",
    "low": "clip_ratio/low_mean",
    "high": "clip_ratio/high_mean",
}


def step_metrics(tokens: dict[str, Tensor]) -> dict[str, float]:
    """Metrics of an optimiser step.

    Args:
        tokens: for each sampled token of the step, (tokens,): `entropy`; `low` and `high`, whether its ratio
            was clipped; `correction`, its importance weight as used; `difference`, its log-probability
            under the trainer less the sampler's; `kl`, where there is a KL term.

    Returns:
        Among others `sampling/effective_sample_size`, Kish's (sum w)^2 / sum w^2 as a share of the tokens,
        and percentiles of w = exp(difference), before any correction.
    """
    if not len(tokens.get("entropy", ())):
        return {}
    wide = {name: values.double() for name, values in tokens.items()}
    apart, used = wide["difference"].abs(), wide["correction"]
    ratios = wide["difference"].exp()
    found = {name: wide[key].mean() for key, name in MEANS.items() if key in wide}
    found |= {
        "clip_ratio/region_mean": wide["low"].maximum(wide["high"]).mean(),
        "sampling/sampling_logp_difference/mean": apart.mean(),
        "sampling/sampling_logp_difference/max": apart.max(),
        "sampling/importance_sampling_ratio/min": used.min(),
        "sampling/importance_sampling_ratio/mean": used.mean(),
        "sampling/importance_sampling_ratio/max": used.max(),
        "sampling/ratio_p95": _quantile(ratios, 0.95),
        "sampling/ratio_p99": _quantile(ratios, 0.99),
        "sampling/effective_sample_size": _effective_share(wide["difference"]),
    }
    return {name: float(value) for name, value in found.items()}


def _effective_share(logs: Tensor) -> Tensor:
    """Of weights given as logarithms; their largest cancels out of the quotient, and cannot overflow."""
    weights = (logs - logs.max()).exp()
    return weights.sum().square() / weights.square().sum() / len(weights)


def _quantile(values: Tensor, share: float) -> Tensor:
    """The smallest value that at least `share` of them do not exceed; torch.quantile has a size limit."""
    rank = max(1, math.ceil(share * len(values)))
    return torch.kthvalue(values, rank).values
