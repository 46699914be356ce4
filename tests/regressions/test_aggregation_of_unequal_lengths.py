"""L8 (verl 4510): modes that average over sequences gave another number than their formula where lengths
differ. Two sequences of 1 and 3 tokens, with losses of -a and -b in each token, by hand."""

import pytest

from tasks.grpo.aggregation import token_weights
from tests.grpo.policies import make_sequence, update

A, B = 2.0, -1.0
TABLE = [
    ("token", None, -(1 * A + 3 * B) / 4),
    ("sequence", None, -(A + B) / 2),
    ("constant", 10, -(1 * A + 3 * B) / (2 * 10)),
]


@pytest.mark.parametrize(("aggregation", "constant", "expected"), TABLE)
def test_aggregation_of_unequal_lengths(policy, aggregation, constant, expected):
    sequences = [
        make_sequence("short", turns=((20,),), advantage=A),
        make_sequence("long", turns=((21, 22, 23),), advantage=B),
    ]
    result, *_ = update(policy, sequences, aggregation=aggregation, constant_length=constant)
    assert result.steps[0].loss == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("aggregation", "constant", "expected"),
    [
        ("token", None, [1 / 4, 1 / 4]),
        ("sequence", None, [1 / 2, 1 / 6]),
        ("constant", 10, [1 / 20, 1 / 20]),
    ],
)
def test_weight_of_a_token_in_each(aggregation, constant, expected):
    assert token_weights([1, 3], aggregation, constant) == pytest.approx(expected)
