"""J1-J3, whole kinds: a judge's reply is taken as it is meant, or refused; never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rewards.replies import ReplyError, parse_verdicts
from tests.rewards.judges import verdicts

LABELS = ["1", "2"]
GOOD = verdicts({"1": 0.8, "2": 0})


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Let me compare {{them}}.\n\n```json\n{GOOD}\n```\nThe first is better.",
        f"Sure! {GOOD} Hope this helps.",
        GOOD.replace('"1"', "1", 1),
    ],
)
def test_j1_an_object_in_a_fence_or_in_prose_is_accepted(reply):
    found = parse_verdicts(reply, LABELS)
    assert {label: verdict.score for label, verdict in found.items()} == {"1": 0.8, "2": 0.0}
    assert found["1"].explanation == "because 1"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (verdicts({"1": 0.5}), "no score for trajectory 2"),
        (verdicts({"1": 0.5, "2": 0.5, "3": 0.5}), "no trajectory '3'"),
        (verdicts({"1": 0.5, "": 0.5}), "no trajectory ''"),
        ('{"scores": [{"trajectory": "1", "score": 1}, {"trajectory": "1", "score": 0}]}', "scored twice"),
        (
            '{"scores": [{"trajectory": true, "score": 1}, {"trajectory": "2", "score": 0}]}',
            "no trajectory True",
        ),
        ('{"scores": {"1": 0.5, "2": 0.5}}', "no list"),
        ('{"scores": [0.5, 0.5]}', "not an object"),
        (verdicts({}), "no score for trajectory 1, 2"),
        ("[0.5, 0.5]", "not one JSON object"),
        ("", "not one JSON object"),
        (GOOD[:-5], "not one JSON object"),
        (f"{GOOD} or rather {GOOD}", "not one JSON object"),
        ("I cannot judge this.", "not one JSON object"),
    ],
)
def test_j2_scores_that_are_not_exactly_those_asked_for_are_refused(reply, words):
    with pytest.raises(ReplyError, match=words):
        parse_verdicts(reply, LABELS)


@pytest.mark.parametrize(
    "score", ["0.8", "7/10", True, False, None, float("nan"), float("inf"), 1.7, -0.1, [1], {}]
)
def test_j3_what_is_no_number_from_0_to_1_is_refused(score):
    with pytest.raises(ReplyError, match="score of trajectory 2"):
        parse_verdicts(verdicts({"1": 0.5, "2": score}), LABELS)


@given(st.text())
def test_any_text_is_verdicts_or_refused(text):
    for reply in (text, "{" + text, '{"scores": [' + text + "]}", f"```json\n{text}\n```"):
        try:
            found = parse_verdicts(reply, LABELS)
        except ReplyError:
            continue
        assert set(found) == set(LABELS)
