"""The probe: it passes what is equal within the tolerance, and nothing else."""

from __future__ import annotations

import math

import pytest

from tasks.inference.probe import compare_probes
from tasks.inference.sampler import InferenceError


def test_a_difference_within_the_tolerance_passes():
    compare_probes([-1.0, -2.0005], [-1.0, -2.0], 1e-3, "it")


def test_the_largest_difference_is_named_with_both_numbers():
    with pytest.raises(InferenceError) as caught:
        compare_probes([-1.0, -2.5, -3.1], [-1.0, -2.0, -3.0], 1e-3, "adapter 4, folder")
    for part in ("adapter 4, folder", "position 1", "-2.500000", "-2.000000", "0.500000", "0.001"):
        assert part in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_what_is_not_finite_never_passes(value):
    with pytest.raises(InferenceError, match="position 1"):
        compare_probes([-1.5, value], [-1.0, -2.0], 1e9, "it")
    with pytest.raises(InferenceError, match="position 1"):
        compare_probes([-1.5, -2.0], [-1.0, value], 1e9, "it")


@pytest.mark.parametrize(("found", "expected"), [([], []), ([-1.0], []), ([-1.0], [-1.0, -2.0])])
def test_probes_of_other_lengths_and_empty_ones_never_pass(found, expected):
    with pytest.raises(InferenceError, match="damaged"):
        compare_probes(found, expected, 1e-3, "it")
