"""How the losses of tokens become one number.

The weights follow from the lengths of the whole optimiser step, before anything is computed, so that
splitting the step into rows or over processes changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Aggregation = Literal["token", "sequence", "constant"]

# What each loss's paper does.
BY_LOSS: dict[str, Aggregation] = {
    "grpo": "sequence",  # arXiv 2402.03300, equation 3
    "dapo": "token",  # arXiv 2503.14476, equation 8
    "dr_grpo": "constant",  # arXiv 2503.20783, section 3.2
    "gspo": "sequence",  # arXiv 2507.18071, equation 5
    "cispo": "token",  # arXiv 2506.13585, equation 4
    "reinforce": "token",
}


def token_weights(
    lengths: Sequence[int], aggregation: Aggregation, constant_length: int | None = None
) -> list[float]:
    """Weight of one sampled token of each trajectory.

    Args:
        lengths: sampled tokens of every trajectory of the optimiser step.
        constant_length: what `constant` divides each trajectory's sum by, beside their number.
    """
    if aggregation == "token":
        return [1 / sum(lengths)] * len(lengths)
    if aggregation == "sequence":
        return [1 / (len(lengths) * length) for length in lengths]
    assert constant_length is not None  # settings see to it
    return [1 / (len(lengths) * constant_length)] * len(lengths)
