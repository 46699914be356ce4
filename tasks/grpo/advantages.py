"""How much better than its group a rollout is. In float64, since float32 residue divided by a tiny spread
gives large advantages where there is nothing to learn.

Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2; `none` is Dr. GRPO (arXiv 2503.20783), section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Scale = Literal["group_std", "batch_std", "none"]

# Rewards of a group that differ by less than this, relative to their size, are equal.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Advantages:
    """Advantages of a batch, in the order of its rollouts.

    Attributes:
        values: (rollouts,) float64; 0 where there is nothing to compare.
        usable: (rollouts,) bool; the rollout is scored and its group has two different rewards or more.
        unscored: rollouts without a reward.
        zero_variance_groups: groups whose rewards are all equal, groups of one among them.
        groups_of_one: groups with a single scored rollout.
    """

    values: np.ndarray
    usable: np.ndarray
    unscored: int
    zero_variance_groups: int
    groups_of_one: int


def group_advantages(
    rewards: Sequence[float | None], groups: Sequence[str], scale: Scale = "group_std"
) -> Advantages:
    """Advantage of each rollout: its reward less its group's mean, divided as `scale` says.

    Args:
        rewards: None where a rollout is unscored; it leaves mean and spread, and its advantage is 0.
        groups: the group of each rollout.
        scale: `group_std`, the sample standard deviation of the group; `batch_std`, that of all scored
            rewards of the batch; `none`, 1.

    Raises:
        ValueError: a reward is NaN or infinite, or the lengths differ.
    """
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards came with {len(groups)} groups")
    scored = np.array([reward is not None for reward in rewards], dtype=bool)
    reward_array = np.array([0.0 if reward is None else reward for reward in rewards], dtype=np.float64)
    if not np.isfinite(reward_array).all():
        raise ValueError("a reward is NaN or infinite; its scorer should have left the rollout unscored")
    values, usable = np.zeros(len(rewards)), np.zeros(len(rewards), dtype=bool)
    zero_variance = ones = 0
    names = np.array(groups, dtype=object)
    for group in dict.fromkeys(groups):
        members = (names == group) & scored
        found = reward_array[members]
        ones += len(found) == 1
        if _are_equal(found):
            zero_variance += 1
            continue
        usable[members] = True
        spread = found.std(ddof=1) if scale == "group_std" else 1.0
        values[members] = (found - found.mean()) / spread
    if scale == "batch_std" and usable.any():
        values /= reward_array[scored].std(ddof=1)
    return Advantages(values, usable, int((~scored).sum()), zero_variance, ones)


def _are_equal(rewards: np.ndarray) -> bool:
    return len(rewards) < 2 or np.ptp(rewards) <= TOLERANCE * max(1.0, np.abs(rewards).max())
