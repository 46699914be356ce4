"""Advantages from several rewards, each compared within its group before they are added.

Normalising the sum lets different combinations of rewards collapse to one advantage, and a reward of large
spread drown the others. GDPO (arXiv 2601.05242), section 3: normalise every reward in its group, add them by
weight, then divide by the spread over the batch, so that advantages do not grow with the number of rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.grpo.advantages import Advantages, are_equal, group_advantages, members_of


def component_advantages(
    components: Mapping[str, Sequence[float | None]], groups: Sequence[str], weights: Mapping[str, float]
) -> Advantages:
    """Advantages of rollouts that have a reward in each of several components.

    Args:
        components: by name, one reward for each rollout. A rollout that lacks one of them is unscored.
        groups: the group of each rollout.
        weights: by name, what each component counts.

    Returns:
        `usable` where any component differs within the group, `zero_variance_groups` where none does.

    Raises:
        ValueError: the names differ, a reward is NaN or infinite, or the lengths differ.
    """
    if set(components) != set(weights) or not components:
        raise ValueError(f"components {sorted(components)} came with weights for {sorted(weights)}")
    complete = [all(reward is not None for reward in row) for row in zip(*components.values(), strict=True)]
    parts = {
        name: group_advantages(
            [reward if whole else None for reward, whole in zip(rewards, complete, strict=True)], groups
        )
        for name, rewards in components.items()
    }
    total = sum((weights[name] * part.values for name, part in parts.items()), np.zeros(len(groups)))
    usable = np.logical_or.reduce([part.usable for part in parts.values()])
    # Within every group each part sums to 0, so the batch's mean is 0 already.
    scored = np.array(complete, dtype=bool)
    if not are_equal(total[scored]):
        total = total / total[scored].std(ddof=1)
    any_part = next(iter(parts.values()))
    flat = sum(not usable[members].any() for _, members in members_of(groups))
    return Advantages(total, usable, any_part.unscored, flat, any_part.groups_of_one)
