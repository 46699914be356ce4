"""Losses as numbers: each surrogate against the formula of its paper in plain floats, away from ratio 1."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.corrections import correction_weights
from tasks.grpo.kl import ESTIMATORS
from tasks.grpo.losses import LOSSES, Clip

LOW, HIGH, DUAL = 0.2, 0.28, 3.0
tokens = st.lists(
    st.tuples(st.floats(-4, 0), st.floats(-4, 0), st.floats(-2, 2), st.integers(0, 2)), min_size=1, max_size=8
)


def tensors(rows):
    logprobs, old, advantages, numbers = zip(*rows, strict=True)
    order = sorted(set(numbers))
    return (
        torch.tensor(logprobs, dtype=torch.float64, requires_grad=True),
        torch.tensor(old, dtype=torch.float64),
        torch.tensor(advantages, dtype=torch.float64),
        torch.tensor([order.index(n) for n in numbers]),
    )


def in_paper(name, rows, dual):
    """(value, its derivative by the token's own log-probability) of each token."""
    found = []
    for lp, old, a, number in rows:
        r = math.exp(lp - old)
        if name == "gspo":
            members = [(x, y) for x, y, _, n in rows if n == number]
            r = math.exp(sum(x - y for x, y in members) / len(members))
        held = min(max(r, 1 - LOW), 1 + HIGH)
        if name == "reinforce":
            found.append((-a * lp, -a))
        elif name == "cispo":
            found.append((-held * a * lp, -held * a))
        else:
            gain = min(r * a, held * a)
            slope = r * a if r * a <= held * a else 0.0  # d r / d lp = r; the bound is constant
            if dual and a < 0 and gain < DUAL * a:
                gain, slope = DUAL * a, 0.0
            found.append((-gain, -slope))
    return found


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("dual", [False, True])
@given(rows=tokens)
def test_each_surrogate_equals_its_formula_and_derivative(name, dual, rows):
    logprobs, old, advantages, numbers = tensors(rows)
    found = LOSSES[name](logprobs, old, advantages, numbers, Clip(LOW, HIGH, DUAL if dual else None))
    found.values.sum().backward()
    expected = in_paper(name, rows, dual)
    assert found.values.tolist() == pytest.approx([value for value, _ in expected], abs=1e-9)
    edges = (1 - LOW, 1 + HIGH, DUAL)  # where there are two derivatives
    ratio = (logprobs.detach() - old).exp().tolist()
    if name == "reinforce" or not any(abs(r - edge) < 1e-9 for r in ratio for edge in edges):
        slopes = [slope for _, slope in expected]
        assert logprobs.grad.tolist() == pytest.approx(slopes, abs=1e-9)


@pytest.mark.parametrize("name", ["grpo", "cispo"])
def test_what_is_clipped_is_reported(name):
    ratios = torch.tensor([0.5, 0.5, 1.0, 2.0, 2.0, 9.0])
    advantages = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
    numbers = torch.zeros(6, dtype=torch.int64)
    found = LOSSES[name](ratios.log(), torch.zeros(6), advantages, numbers, Clip(LOW, HIGH, DUAL))
    if name == "cispo":  # whose bounds hold whatever the advantage is
        assert found.low.tolist() == [True, True, False, False, False, False]
        assert found.high.tolist() == [False, False, False, True, True, True]
    else:
        assert found.low.tolist() == [False, True, False, False, False, False]
        assert found.high.tolist() == [False, False, False, True, False, True]


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_kl_estimators(differences):
    d = torch.tensor(differences, dtype=torch.float64)
    zero = torch.zeros_like(d)
    assert ESTIMATORS["k1"](d, zero).tolist() == differences
    assert ESTIMATORS["k2"](d, zero).tolist() == pytest.approx([x * x / 2 for x in differences])
    assert ESTIMATORS["k3"](d, zero).tolist() == pytest.approx([math.exp(-x) - 1 + x for x in differences])
    assert (ESTIMATORS["k3"](d, zero) >= -1e-15).all()


def test_kl_estimators_agree_on_the_mean():
    """k1 and k3 have the mean KL(p, q) under p; k2 does not quite."""
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.4, 0.4, 0.2]).double()
    exact = float((p * (p / q).log()).sum())
    for name in ("k1", "k3"):
        assert float((p * ESTIMATORS[name](p.log(), q.log())).sum()) == pytest.approx(exact)


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        ("none", [1, 1, 1, 1]),
        ("truncated_token", [2.0, 0.5, 0.25, 2.0]),
        ("masked_token", [0, 0.5, 0.25, 2.0]),
        ("truncated_sequence", [2.0, 2.0, 0.5, 0.5]),
        ("masked_sequence", [2.0, 2.0, 0.5, 0.5]),
    ],
)
def test_corrections_by_hand(correction, expected):
    """Two sequences with the ratios (4, 1/2) and (1/4, 2), whose products are 2 and 1/2."""
    old = torch.tensor([4.0, 0.5, 0.25, 2.0], dtype=torch.float64).log().requires_grad_()
    found = correction_weights(old, torch.zeros(4), torch.tensor([0, 0, 1, 1]), correction, high=2.0 + 1e-12)
    assert found.tolist() == pytest.approx(expected)
    assert not found.requires_grad


def test_corrections_have_a_lower_bound():
    old = torch.tensor([0.1, 1.0]).log()
    given = (old, torch.zeros(2), torch.tensor([0, 1]))
    assert correction_weights(*given, "truncated_token", 2.0, 0.5).tolist() == pytest.approx([0.5, 1.0])
    assert correction_weights(*given, "masked_token", 2.0, 0.5).tolist() == pytest.approx([0.0, 1.0])


def test_a_sequence_whose_weight_overflows_is_bounded():
    old, numbers = torch.full((400,), 10.0), torch.zeros(400, dtype=torch.int64)
    for correction, expected in (("truncated_sequence", 2.0), ("masked_sequence", 0.0)):
        found = correction_weights(old, torch.zeros(400), numbers, correction, 2.0)
        assert found.unique().tolist() == [expected]
