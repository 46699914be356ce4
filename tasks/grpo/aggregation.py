"""How the losses of tokens become one number. The weights are known before anything is computed, from the whole
optimiser step, so that splitting it into rows or over processes changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def token_mean(lengths: Sequence[int]) -> list[float]:
    """Every sampled token weighs the same: DAPO (arXiv 2503.14476), equation 8."""
    return [1 / sum(lengths)] * len(lengths)


def sequence_mean(lengths: Sequence[int]) -> list[float]:
    """Every sequence weighs the same, its tokens equally: GRPO (arXiv 2402.03300), equation 3."""
    return [1 / (len(lengths) * length) for length in lengths]


AGGREGATIONS: dict[str, Callable[[Sequence[int]], list[float]]] = {
    "token": token_mean,
    "sequence": sequence_mean,
}
"""Weight of one token of each sequence, given the sampled tokens of every sequence of the optimiser step."""
