"""Which groups of a step can teach anything, and how many more would have to be sampled.

Dynamic sampling: DAPO (arXiv 2503.14476), section 3.2. Groups whose rewards are all equal are left out, and
others are sampled in their place, up to a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.grpo.advantages import Advantages, as_array, members_of


@dataclass(frozen=True)
class Selection:
    """Groups in the order in which they came.

    Attributes:
        kept: groups to train on, at most as many as are wanted.
        dropped: groups without two different rewards.
        surplus: groups that could be trained on, beyond those that are wanted.
        to_sample: how many more groups to sample now; 0 where enough are kept or the limit is reached.
    """

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    surplus: tuple[str, ...]
    to_sample: int


def select_groups(advantages: Advantages, groups: Sequence[str], *, wanted: int, limit: int) -> Selection:
    """Choose the groups of a step.

    Args:
        advantages: of all rollouts sampled so far, in the order of `groups`.
        wanted: groups that a step trains on.
        limit: groups that may be sampled for a step in all.
    """
    informative: list[str] = []
    dropped: list[str] = []
    for group, members in members_of(groups):
        (informative if advantages.usable[members].any() else dropped).append(group)
    kept, surplus = tuple(informative[:wanted]), tuple(informative[wanted:])
    left = limit - len(informative) - len(dropped)
    return Selection(kept, tuple(dropped), surplus, max(0, min(wanted - len(kept), left)))


@dataclass(frozen=True)
class SolvedGroups:
    """How many groups solved their scenario in none, some or all of their scored rollouts."""

    none: int
    some: int
    all: int


def solved_groups(
    rewards: Sequence[float | None], groups: Sequence[str], solved_at: float = 1.0
) -> SolvedGroups:
    """Count groups by whether their rewards reach `solved_at`; groups without any reward are not counted.

    Raises:
        ValueError: a reward is NaN or infinite, or the lengths differ.
    """
    values, scored = as_array(rewards, groups)
    none = some = every = 0
    for _, every_member in members_of(groups):
        members = every_member[scored[every_member]]
        solved = values[members] >= solved_at
        if not len(members):
            continue
        none += not solved.any()
        every += solved.all()
        some += solved.any() and not solved.all()
    return SolvedGroups(int(none), int(some), int(every))
