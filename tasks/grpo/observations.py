"""What the policy said of each sampled token before the first optimiser step of an update."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import torch
from torch import Tensor

from tasks.grpo.batches import PackedRow, TrainingSequence
from tasks.grpo.results import TokenStats

Key = tuple[str, int]  # trajectory and offset: one segment


@dataclass(frozen=True)
class _Seen:
    sequence: TrainingSequence
    logprobs: list[float]
    entropies: list[float]
    reference: list[float] | None


class Observations:
    """Kept by segment, since minibatches pack the same segments into other rows."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def know(self, row: PackedRow) -> bool:
        return all(_key(sequence) in self._seen for sequence in row.sequences)

    def add(self, row: PackedRow, logprobs: Tensor, entropies: Tensor, reference: Tensor | None) -> None:
        """Take note of a row; each tensor is (tokens,), over its sampled tokens in order."""
        lengths = [len(sequence.sampled) for sequence in row.sequences]
        parts = zip(
            row.sequences,
            logprobs.split(lengths),
            entropies.split(lengths),
            [None] * len(lengths) if reference is None else reference.split(lengths),
            strict=True,
        )
        for sequence, of_policy, entropy, of_reference in parts:
            self._seen[_key(sequence)] = _Seen(
                sequence,
                of_policy.tolist(),
                entropy.tolist(),
                None if of_reference is None else of_reference.tolist(),
            )

    def recall(self, row: PackedRow, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """(tokens,) log-probabilities of the policy and, where there are any, of the reference."""
        seen = [self._seen[_key(sequence)] for sequence in row.sequences]
        logprobs = torch.tensor([value for entry in seen for value in entry.logprobs], device=device)
        if any(entry.reference is None for entry in seen):
            return logprobs, None
        reference = [value for entry in seen for value in entry.reference or ()]
        return logprobs, torch.tensor(reference, device=device)

    def token_stats(self) -> list[TokenStats]:
        """One entry for each trajectory, its segments in order."""
        by_trajectory: dict[str, list[_Seen]] = {}
        for (trajectory_id, _), seen in sorted(self._seen.items(), key=lambda item: item[0][1]):
            by_trajectory.setdefault(trajectory_id, []).append(seen)
        return [_stats(trajectory_id, segments) for trajectory_id, segments in by_trajectory.items()]


def _stats(trajectory_id: str, segments: list[_Seen]) -> TokenStats:
    stats = TokenStats(trajectory_id, [], [], None if segments[0].reference is None else [], [], [], [])
    for seen in segments:
        sequence = seen.sequence
        stats.positions.extend(sequence.offset + index for index in sequence.sampled)
        stats.trainer_logprobs.extend(seen.logprobs)
        stats.entropies.extend(seen.entropies)
        stats.ratios.extend(
            exp(ours - theirs) for ours, theirs in zip(seen.logprobs, sequence.sampler_logprobs, strict=True)
        )
        stats.advantages.extend([sequence.advantage] * len(seen.logprobs))
        if stats.reference_logprobs is not None:
            stats.reference_logprobs.extend(seen.reference or ())
    return stats


def _key(sequence: TrainingSequence) -> Key:
    return sequence.trajectory_id, sequence.offset
