"""Sequences packed into rows, so that what a group shares is computed once and nothing leaks between them.

row:       [ prefix | suffix 1 | suffix 2 | … ]
positions:   0 … p-1  p …        p …            each suffix goes on where the prefix ends
attention:   a suffix sees the prefix and itself; the prefix sees itself
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class TrainingSequence:
    """One segment of one trajectory.

    Attributes:
        token_ids, mask: the segment's tokens, and which of them the policy sampled; never the first one,
            since nothing predicts it.
        logprobs: the sampler's (nats), None where `mask` is False, and where it reported none.
        advantage: what every sampled token carries.
        offset: index of the first token in the trajectory's token record.

    Raises:
        ValueError: lengths differ, the first token is marked as sampled, or the advantage is not finite.
    """

    trajectory_id: str
    group_id: str
    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float | None, ...]
    advantage: float
    offset: int

    def __post_init__(self) -> None:
        name = f"The segment at {self.offset} of trajectory {self.trajectory_id}"
        lengths = len(self.token_ids), len(self.mask), len(self.logprobs)
        if len(set(lengths)) != 1:
            raise ValueError(f"{name} has {lengths} ids, mask entries and logprobs: they must be as many.")
        if self.mask and self.mask[0]:
            raise ValueError(f"{name} begins with a sampled token, which nothing predicts.")
        if not math.isfinite(self.advantage):
            raise ValueError(f"{name} has the advantage {self.advantage}, which is no finite number.")

    @cached_property
    def sampled(self) -> list[int]:
        """Indexes into `token_ids` of what the policy sampled."""
        return [index for index, sampled in enumerate(self.mask) if sampled]

    @property
    def has_all_logprobs(self) -> bool:
        """Whether the sampler reported a finite log-probability for everything that it sampled."""
        values = (self.logprobs[index] for index in self.sampled)
        return all(value is not None and math.isfinite(value) for value in values)

    @property
    def sampler_logprobs(self) -> list[float]:
        """The sampler's log-probabilities of what it sampled, in order; none may be missing."""
        found = [self.logprobs[index] for index in self.sampled]
        assert all(value is not None for value in found), self.trajectory_id
        return [value for value in found if value is not None]


@dataclass(frozen=True)
class Layout:
    """How a row is made: the length of its prefix, and of each suffix that goes on from it."""

    prefix: int
    suffixes: tuple[int, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """(length,) position of each token in its own sequence."""
        ends = (self.prefix + length for length in self.suffixes)
        return (*range(self.prefix), *(position for end in ends for position in range(self.prefix, end)))

    @property
    def segments(self) -> tuple[int, ...]:
        """(length,) 0 for the prefix, n for the n-th suffix."""
        numbered = enumerate(self.suffixes, start=1)
        return (*[0] * self.prefix, *(number for number, length in numbered for _ in range(length)))


@dataclass(frozen=True)
class PackedRow:
    """A prefix and the suffixes behind it, as one sequence of the model.

    Attributes:
        sequences: what the row is made of, in order.
        token_ids: (length,) of the packed row.
        layout: where prefix and suffixes lie.
        predictors: (tokens,) for each sampled token, in order, the index in the row whose logits predict it.
    """

    sequences: tuple[TrainingSequence, ...]
    token_ids: tuple[int, ...]
    layout: Layout
    predictors: tuple[int, ...]

    @property
    def targets(self) -> list[int]:
        """(tokens,) ids of the sampled tokens."""
        return [s.token_ids[index] for s in self.sequences for index in s.sampled]

    @property
    def sampler_logprobs(self) -> list[float]:
        """(tokens,) the sampler's log-probabilities of them."""
        return [value for s in self.sequences for value in s.sampler_logprobs]

    def per_token(self, values: Sequence[T]) -> list[T]:
        """(tokens,) one value for each sequence, repeated over its sampled tokens."""
        return [v for v, s in zip(values, self.sequences, strict=True) for _ in s.sampled]


def pack(sequences: Iterable[TrainingSequence], budget: int) -> Iterator[PackedRow]:
    """Rows of at most `budget` tokens; a longer sequence has a row of its own.

    Groups are kept apart, and each is cut into the rows that have the fewest tokens in all: the later
    segments of trajectories begin otherwise than the first ones, and would only shorten their prefix. Rows
    stay short for it, and attention, whose cost grows with the square, stays cheap.

    Args:
        sequences: each with one sampled token or more.
    """
    groups: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.group_id, []).append(sequence)
    for members in groups.values():
        yield from _pack_group(sorted(members, key=_prompt), budget)


def _pack_group(members: Sequence[TrainingSequence], budget: int) -> Iterator[PackedRow]:
    """Cut members, in the order of their prompts so that neighbours share the most, where it is cheapest."""
    prompts = [_prompt(member) for member in members]
    shared = [_common(first, second) for first, second in pairwise(prompts)]
    best = [_Cut(tokens=0, rows=0, start=0, prefix=0)]  # of the first n members, by n
    for end, member in enumerate(members, start=1):
        prefix, length = len(prompts[end - 1]), len(member.token_ids)
        choices = [_Cut(best[-1].tokens + length, best[-1].rows + 1, end - 1, prefix)]
        for start in range(end - 2, -1, -1):
            before, prefix = prefix, min(prefix, shared[start])
            # One more of them, and the prefix of the row stands once instead of in each.
            length += len(members[start].token_ids) + (end - start - 2) * before - (end - start - 1) * prefix
            if prefix and length <= budget:
                choices.append(_Cut(best[start].tokens + length, best[start].rows + 1, start, prefix))
        best.append(min(choices, key=lambda cut: (cut.tokens, cut.rows)))
    rows, end = [], len(members)
    while end:
        cut = best[end]
        rows.append(_row(members[cut.start : end], cut.prefix))
        end = cut.start
    yield from reversed(rows)


@dataclass(frozen=True)
class _Cut:
    """The cheapest rows of the first so many members: all their tokens, and where the last row starts."""

    tokens: int
    rows: int
    start: int
    prefix: int


def _prompt(sequence: TrainingSequence) -> tuple[int, ...]:
    """What stands before anything that was sampled: what may be shared."""
    return sequence.token_ids[: sequence.sampled[0]]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning of two sequences."""
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(index for index in range(limit) if first[index] != second[index])


def _row(sequences: Sequence[TrainingSequence], prefix: int) -> PackedRow:
    token_ids, predictors = list(sequences[0].token_ids[:prefix]), []
    for sequence in sequences:
        start = len(token_ids) - prefix  # a suffix token's row index is its own index plus this
        token_ids += sequence.token_ids[prefix:]
        # The token before the first of a suffix is the last of the prefix.
        predictors += [index - 1 + (start if index > prefix else 0) for index in sequence.sampled]
    layout = Layout(prefix, tuple(len(sequence.token_ids) - prefix for sequence in sequences))
    return PackedRow(tuple(sequences), tuple(token_ids), layout, tuple(predictors))
