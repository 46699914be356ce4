"""What was known of each sampled token before the first optimiser step of an update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.grpo.batches import PackedRow, TrainingSequence
from tasks.grpo.objective import Before
from tasks.grpo.processes import gather
from tasks.grpo.results import TokenStats

Key = tuple[str, int]  # trajectory and offset: one segment


@dataclass(frozen=True)
class _Seen:
    """Of one segment: its tokens' numbers, each (tokens,) on the CPU."""

    sequence: TrainingSequence
    old: Tensor
    reference: Tensor | None
    advantages: Tensor
    entropies: Tensor


class Observations:
    """Kept by segment, since minibatches pack the same segments into other rows."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def know(self, row: PackedRow) -> bool:
        return all(_key(sequence) in self._seen for sequence in row.sequences)

    def add(self, row: PackedRow, before: Before, entropies: Tensor) -> None:
        """Take note of a row; each tensor is (tokens,), over its sampled tokens in order."""
        lengths = [len(sequence.sampled) for sequence in row.sequences]
        nothing = [None] * len(lengths)
        parts = zip(
            row.sequences,
            before.old.cpu().split(lengths),
            nothing if before.reference is None else before.reference.cpu().split(lengths),
            before.advantages.cpu().split(lengths),
            entropies.cpu().split(lengths),
            strict=True,
        )
        for sequence, *tensors in parts:
            self._seen[_key(sequence)] = _Seen(sequence, *tensors)

    def recall(self, row: PackedRow, device: torch.device) -> Before:
        """What was taken note of, over the row's sampled tokens in order."""
        seen = [self._seen[_key(sequence)] for sequence in row.sequences]
        references = [entry.reference for entry in seen if entry.reference is not None]
        return Before(
            old=torch.cat([entry.old for entry in seen]).to(device),
            reference=torch.cat(references).to(device) if references else None,
            advantages=torch.cat([entry.advantages for entry in seen]).to(device),
        )

    def share(self) -> None:
        """Let every process know what each of them has seen."""
        for seen in gather(self._seen):
            self._seen.update(seen)

    def token_stats(self) -> list[TokenStats]:
        """One entry for each trajectory, its segments in order."""
        by_trajectory: dict[str, list[_Seen]] = {}
        for (trajectory_id, _), seen in sorted(self._seen.items(), key=lambda item: item[0]):
            by_trajectory.setdefault(trajectory_id, []).append(seen)
        return [_stats(trajectory_id, segments) for trajectory_id, segments in by_trajectory.items()]


def _stats(trajectory_id: str, segments: list[_Seen]) -> TokenStats:
    stats = TokenStats(trajectory_id, [], [], None if segments[0].reference is None else [], [], [], [])
    for seen in segments:
        sequence = seen.sequence
        sampler = torch.tensor(sequence.sampler_logprobs, dtype=seen.old.dtype)
        stats.positions.extend(sequence.offset + index for index in sequence.sampled)
        stats.trainer_logprobs.extend(seen.old.tolist())
        stats.entropies.extend(seen.entropies.tolist())
        stats.ratios.extend((seen.old - sampler).exp().tolist())
        stats.advantages.extend(seen.advantages.tolist())
        if stats.reference_logprobs is not None and seen.reference is not None:
            stats.reference_logprobs.extend(seen.reference.tolist())
    return stats


def _key(sequence: TrainingSequence) -> Key:
    return sequence.trajectory_id, sequence.offset
