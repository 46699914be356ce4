"""From stored rows to what the trainer takes: each segment of a scored trajectory, with its advantage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from storage.records import Trajectory
from tasks.grpo.batches import TrainingSequence


def training_sequences(
    trajectories: Sequence[Trajectory], advantages: Mapping[str, float]
) -> list[TrainingSequence]:
    """Sequences of the trajectories that have an advantage, in order; segments without samples are left out.

    Args:
        advantages: trajectory_id to advantage; trajectories that are not in it train nothing.
    """
    sequences = []
    for trajectory in trajectories:
        if trajectory.trajectory_id not in advantages:
            continue
        for start, end in pairwise([*trajectory.segment_starts, len(trajectory.token_ids)]):
            if not any(trajectory.mask[start:end]):
                continue
            sequences.append(
                TrainingSequence(
                    trajectory_id=trajectory.trajectory_id,
                    group_id=trajectory.key.group_id,
                    token_ids=trajectory.token_ids[start:end],
                    mask=trajectory.mask[start:end],
                    logprobs=trajectory.logprobs[start:end],
                    advantage=advantages[trajectory.trajectory_id],
                    offset=start,
                )
            )
    return sequences
