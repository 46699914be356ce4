"""Metrics of an optimiser step, against plain arithmetic over its tokens."""

import math

import pytest
import torch

from tasks.grpo.metrics import step_metrics

TOKENS = {
    "entropy": torch.tensor([1.0, 2.0, 3.0, 6.0]),
    "low": torch.tensor([True, False, False, False]),
    "high": torch.tensor([False, True, False, False]),
    "correction": torch.tensor([0.5, 1.0, 2.0, 1.0]),
    "difference": torch.tensor([0.5, 1.0, 4.0, 1.0]).log(),
}


def test_each_metric_by_hand():
    found = step_metrics(TOKENS)
    apart = [math.log(2), 0.0, math.log(4), 0.0]
    assert found == pytest.approx(
        {
            "entropy": 3.0,
            "clip_ratio/low_mean": 0.25,
            "clip_ratio/high_mean": 0.25,
            "clip_ratio/region_mean": 0.5,
            "sampling/sampling_logp_difference/mean": sum(apart) / 4,
            "sampling/sampling_logp_difference/max": math.log(4),
            "sampling/importance_sampling_ratio/min": 0.5,
            "sampling/importance_sampling_ratio/mean": 1.125,
            "sampling/importance_sampling_ratio/max": 2.0,
            "sampling/ratio_p95": 4.0,
            "sampling/ratio_p99": 4.0,
            "sampling/effective_sample_size": 6.5**2 / (0.25 + 1 + 16 + 1) / 4,
        },
        abs=1e-6,
    )


def test_kl_is_reported_where_there_is_one():
    assert step_metrics({**TOKENS, "kl": torch.tensor([0.0, 0.0, 0.0, 2.0])})["kl"] == 0.5


def test_percentiles_are_values_that_occur():
    many = {**{k: v.repeat(25) for k, v in TOKENS.items()}, "difference": torch.arange(1.0, 101.0).log()}
    found = step_metrics(many)
    assert (found["sampling/ratio_p95"], found["sampling/ratio_p99"]) == pytest.approx((95, 99))


def test_no_tokens_have_no_metrics():
    assert step_metrics({}) == {}


def test_weights_that_overflow_still_have_an_effective_size():
    found = step_metrics({**TOKENS, "difference": torch.tensor([800.0, 800.0, 0.0, 0.0])})
    assert found["sampling/effective_sample_size"] == pytest.approx(0.5)
