"""The champion gate's test against values from the formula, and what it decides."""

from __future__ import annotations

import math

import pytest

from tasks.gate import compare_pairs, decide
from tasks.settings import GateSettings


def test_interval_is_that_of_the_paired_t_test():
    # Differences 1, 1, 0.5, 1: mean 0.875, sample deviation 0.25; t(0.975, 3 degrees) = 3.182446.
    compared = compare_pairs([(0, 1), (1, 2), (2.5, 3), (3, 4)], unusable=0, confidence=0.95)
    assert compared.difference == pytest.approx(0.875)
    half = 3.182446 * 0.25 / 2
    assert (compared.low, compared.high) == pytest.approx((0.875 - half, 0.875 + half), abs=1e-6)
    assert (compared.champion, compared.candidate) == (1.625, 2.5)


def test_better_beyond_chance_is_promoted_and_chance_is_not():
    clear = compare_pairs([(0, 1), (1, 2), (2.5, 3), (3, 4)], unusable=0, confidence=0.95)
    assert decide(clear, GateSettings())[0]
    noisy = compare_pairs([(0, 1), (1, 0), (0, 1), (0, 0)], unusable=0, confidence=0.95)
    promoted, reason = decide(noisy, GateSettings())
    assert not promoted
    assert "+0.2500" in reason
    assert "95% confidence interval [" in reason


def test_margin_must_be_exceeded_by_the_whole_interval():
    clear = compare_pairs([(0, 1), (1, 2), (2.5, 3), (3, 4)], unusable=0, confidence=0.95)
    assert not decide(clear, GateSettings(margin=0.5))[0]
    assert decide(clear, GateSettings(margin=0.4))[0]


@pytest.mark.parametrize(("pairs", "low"), [([(1, 1)] * 3, 0.0), ([(0, 1)] * 3, 1.0)])
def test_equal_differences_have_an_interval_of_one_point(pairs, low):
    compared = compare_pairs(pairs, unusable=0, confidence=0.95)
    assert (compared.low, compared.high) == (low, low)
    assert decide(compared, GateSettings())[0] == (low > 0)


@pytest.mark.parametrize("pairs", [[], [(0.0, 9.0)]])
def test_too_few_scenarios_promote_nothing(pairs):
    compared = compare_pairs(pairs, unusable=0, confidence=0.95)
    assert compared.low == -math.inf
    assert not decide(compared, GateSettings())[0]


def test_too_many_lost_scenarios_promote_nothing():
    pairs = [(0, 1), (1, 2), (2.5, 3), (3, 4)]
    promoted, reason = decide(compare_pairs(pairs, unusable=1, confidence=0.95), GateSettings())
    assert not promoted
    assert "1 of 5 held-out scenarios have no usable reward" in reason
    assert decide(compare_pairs(pairs, unusable=1, confidence=0.95), GateSettings(max_unusable=0.2))[0]
