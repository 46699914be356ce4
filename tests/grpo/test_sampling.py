"""Which groups of a step are trained on, and how many more are sampled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.advantages import group_advantages
from tasks.grpo.sampling import Selection, SolvedGroups, select_groups, solved_groups

GROUPS = ["a", "a", "b", "b", "c", "c", "d", "d"]
REWARDS = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, None, 0.0]


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [
        (1, 8, Selection(("a",), ("b", "d"), ("c",), 0)),
        (2, 8, Selection(("a", "c"), ("b", "d"), (), 0)),
        (4, 8, Selection(("a", "c"), ("b", "d"), (), 2)),
        (4, 5, Selection(("a", "c"), ("b", "d"), (), 1)),
        (4, 4, Selection(("a", "c"), ("b", "d"), (), 0)),
    ],
)
def test_groups_without_signal_are_replaced_up_to_the_limit(wanted, limit, expected):
    found = group_advantages(REWARDS, GROUPS)
    assert select_groups(found, GROUPS, wanted=wanted, limit=limit) == expected


def test_solved_groups_are_counted():
    assert solved_groups(REWARDS, GROUPS) == SolvedGroups(none=1, some=2, all=1)
    assert solved_groups([None], ["a"]) == SolvedGroups(0, 0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, 0.0, 1.0]))))
def test_every_group_has_one_place(rollouts):
    groups, rewards = [g for g, _ in rollouts], [r for _, r in rollouts]
    found = select_groups(group_advantages(rewards, groups), groups, wanted=2, limit=9)
    assert sorted(found.kept + found.dropped + found.surplus) == sorted(set(groups))
    counts = solved_groups(rewards, groups)
    scored = {g for g, r in rollouts if r is not None}
    assert counts.none + counts.some + counts.all == len(scored)
