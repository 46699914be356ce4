"""Sequences packed into rows, so that what a group shares is computed once and nothing leaks between them.

row:       [ prefix | suffix 1 | suffix 2 | … ]
positions:   0 … p-1  p …        p …            each suffix goes on where the prefix ends
attention:   a suffix sees the prefix and itself; the prefix sees itself
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True)
class TrainingSequence:
    """One segment of one trajectory. `logprobs` are the sampler's, None where `mask` is False."""

    trajectory_id: str
    group_id: str
    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float | None, ...]
    advantage: float
    offset: int  # index of its first token in the trajectory's token record

    @cached_property
    def sampled(self) -> list[int]:
        """Indexes into `token_ids` of what the policy sampled."""
        return [index for index, sampled in enumerate(self.mask) if sampled]

    @property
    def sampler_logprobs(self) -> list[float]:
        """The sampler's log-probabilities of what it sampled, in order; none may be missing."""
        found = [self.logprobs[index] for index in self.sampled]
        assert all(value is not None for value in found), self.trajectory_id
        return [value for value in found if value is not None]


@dataclass(frozen=True)
class PackedRow:
    """A prefix and the suffixes behind it, as one sequence of the model.

    Attributes:
        sequences: what the row is made of, in order.
        token_ids, positions: (length,) of the packed row.
        segments: (length,) 0 for the prefix, n for the n-th suffix.
        predictors: (tokens,) for each sampled token, in order, the index in the row whose logits predict it.
    """

    sequences: tuple[TrainingSequence, ...]
    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    segments: tuple[int, ...]
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

    def attention_mask(self, device: torch.device) -> torch.Tensor:
        """(1, 1, length, length) bool: True where a row's token (third axis) sees another (fourth axis)."""
        import torch

        segments = torch.tensor(self.segments, device=device)
        own = segments[:, None] == segments[None, :]
        earlier = torch.ones(len(segments), len(segments), dtype=torch.bool, device=device).tril()
        return ((own | (segments == 0)[None, :]) & earlier)[None, None]


def pack(sequences: Iterable[TrainingSequence], budget: int) -> Iterator[PackedRow]:
    """Rows of at most `budget` tokens, groups kept apart; a longer sequence has a row of its own."""
    groups: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.group_id, []).append(sequence)
    for members in groups.values():
        yield from _pack_group(members, budget)


def _pack_group(members: Sequence[TrainingSequence], budget: int) -> Iterator[PackedRow]:
    row: list[TrainingSequence] = []
    for member in members:
        if row and _packed_length([*row, member]) > budget:
            yield _row(row)
            row = []
        row.append(member)
    if row:
        yield _row(row)


def _packed_length(sequences: Sequence[TrainingSequence]) -> int:
    prefix = _shared_prefix(sequences)
    return prefix + sum(len(sequence.token_ids) - prefix for sequence in sequences)


def _shared_prefix(sequences: Sequence[TrainingSequence]) -> int:
    """Length of the common beginning, before anything that was sampled."""
    unsampled = min(sequence.mask.index(True) for sequence in sequences)
    columns = zip(*(sequence.token_ids[:unsampled] for sequence in sequences), strict=True)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _row(sequences: Sequence[TrainingSequence]) -> PackedRow:
    prefix = _shared_prefix(sequences)
    token_ids = list(sequences[0].token_ids[:prefix])
    positions, segments, predictors = list(range(prefix)), [0] * prefix, []
    for number, sequence in enumerate(sequences, start=1):
        start = len(token_ids) - prefix  # a suffix token's row index is its own index plus this
        token_ids += sequence.token_ids[prefix:]
        positions += range(prefix, len(sequence.token_ids))
        segments += [number] * (len(sequence.token_ids) - prefix)
        # The token before the first of a suffix is the last of the prefix.
        predictors += [index - 1 + (start if index > prefix else 0) for index in sequence.sampled]
    return PackedRow(tuple(sequences), tuple(token_ids), tuple(positions), tuple(segments), tuple(predictors))
