"""How much better than its group a rollout is. In float64, since float32 residue divided by a tiny spread
gives large advantages where there is nothing to learn.

Sources: DeepSeekMath (arXiv 2402.03300), section 4.1.2; scale `none` is Dr. GRPO (arXiv 2503.20783), section
3.2; baseline `leave_one_out` is RLOO (arXiv 2402.14740), section 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Scale = Literal["group_std", "batch_std", "none"]
Baseline = Literal["group_mean", "leave_one_out"]

# Rewards of a group that differ by less than this, relative to their size, are equal. SQL knows it too:
# `rewards_are_equal` in storage/catalog.py.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Advantages:
    """Advantages of a batch, in the order of its rollouts.

    Attributes:
        values: (rollouts,) float64; 0 where there is nothing to compare.
        usable: (rollouts,) bool; the rollout is scored and its group has two different rewards or more.
        unscored: rollouts without a reward.
        zero_variance_groups: groups whose rewards are all equal, those of one or no scored rollout included.
        groups_of_one: groups with a single scored rollout.
    """

    values: np.ndarray
    usable: np.ndarray
    unscored: int
    zero_variance_groups: int
    groups_of_one: int


def group_advantages(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    scale: Scale = "group_std",
    baseline: Baseline = "group_mean",
) -> Advantages:
    """Advantage of each rollout: its reward less its group's baseline, divided as `scale` says.

    Args:
        rewards: None where a rollout is unscored; it leaves baseline and spread, and its advantage is 0.
        groups: the group of each rollout.
        scale: `group_std`, the sample standard deviation of the group; `batch_std`, that of all scored
            rewards of the batch; `none`, 1.
        baseline: `group_mean`, or `leave_one_out`, the mean of the others: n / (n - 1) times as far from it.

    Raises:
        ValueError: a reward is NaN or infinite, or the lengths differ.
    """
    values_of, scored = as_array(rewards, groups)
    values, usable = np.zeros(len(rewards)), np.zeros(len(rewards), dtype=bool)
    zero_variance = ones = 0
    for _, every_member in members_of(groups):
        members = every_member[scored[every_member]]
        found = values_of[members]
        ones += len(found) == 1
        if are_equal(found):
            zero_variance += 1
            continue
        usable[members] = True
        spread = found.std(ddof=1) if scale == "group_std" else 1.0
        further = len(found) / (len(found) - 1) if baseline == "leave_one_out" else 1.0
        values[members] = further * (found - found.mean()) / spread
    if scale == "batch_std" and usable.any():
        values /= values_of[scored].std(ddof=1)
    return Advantages(values, usable, int((~scored).sum()), zero_variance, ones)


def as_array(rewards: Sequence[float | None], groups: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(rollouts,) float64 rewards, 0 where there is none, and (rollouts,) bool, whether there is one.

    Raises:
        ValueError: a reward is NaN or infinite, or the lengths differ.
    """
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards came with {len(groups)} groups")
    scored = np.array([reward is not None for reward in rewards], dtype=bool)
    values = np.array([0.0 if reward is None else reward for reward in rewards], dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a reward is NaN or infinite; its scorer should have left the rollout unscored")
    return values, scored


def members_of(groups: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Each group, in the order of its first rollout, with the indexes of its rollouts."""
    found: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        found.setdefault(group, []).append(index)
    for group, indexes in found.items():
        yield group, np.array(indexes)


def are_equal(rewards: np.ndarray) -> bool:
    """Whether there is nothing to compare: fewer than two rewards, or none that differs from the others."""
    return len(rewards) < 2 or bool(np.ptp(rewards) <= TOLERANCE * max(1.0, np.abs(rewards).max()))
