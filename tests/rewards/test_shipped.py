"""Shipped rewards: right and wrong are 1.0 and 0.0, and what cannot be told is null with its reason."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import ConfigError
from storage.records import Message, Scenario, Turn
from tasks.rewards.answers import numbers
from tasks.rewards.scorers import make_scorer
from tasks.settings import RewardSettings
from tests.rewards.test_programmatic import trajectory


def said(*replies, finish_reason="stop", **fields):
    turn = Turn(0, 0, 0, 0, finish_reason, 0, 0, None, datetime.now(UTC), 0.0)
    return trajectory(messages=tuple(Message("assistant", text) for text in replies), turns=(turn,), **fields)


async def score(name, trajectory_, answer=4, **args):
    scorer = make_scorer(RewardSettings(scorer=f"tasks.rewards.{name}", args=args))
    [found] = await scorer.score([trajectory_], {"s": Scenario("s", {"answer": answer})})
    return found


@pytest.mark.parametrize(
    ("reply", "answer", "args", "reward"),
    [
        ("Paris", "Paris", {}, 1.0),
        ("  Paris \n", "Paris", {}, 1.0),
        ("paris", "Paris", {}, 0.0),
        ("The paris.", "Paris", {"normalise": "squad"}, 1.0),
        (" Paris", "Paris", {"normalise": "none"}, 0.0),
        ("Rome", ["Paris", "Rome"], {}, 1.0),
        ("<a>Rome</a> no, <a>Paris</a>", "Paris", {"pattern": "<a>(.*?)</a>"}, 1.0),
        ("Paris", "Paris", {"pattern": "<a>(.*?)</a>"}, 0.0),
        ("", "", {}, 0.0),
    ],
)
async def test_exact_match(reply, answer, args, reward):
    found = await score("answers:exact_match", said(reply), answer, **args)
    assert (found.reward, found.error) == (reward, None)


@pytest.mark.parametrize(
    ("reply", "answer", "reward"),
    [
        ("3 + 1 = 4", 4, 1.0),
        ("It is 4.", 4, 1.0),
        ("1,234.5 euros", "1234.5", 1.0),
        ("between 3-4", 4, 1.0),
        ("x = -4", 4, 0.0),
        ("1e999", 4, 0.0),
        ("4 apples, or 5", 4, 0.0),
        ("four", 4, 0.0),
        ("0.0", 0, 1.0),
    ],
)
async def test_numeric(reply, answer, reward):
    assert (await score("answers:numeric", said(reply), answer)).reward == reward


@pytest.mark.parametrize("answer", ["four", "1 or 2", ""])
async def test_a_scenario_whose_answer_is_no_number_is_unscored_and_says_so(answer):
    found = await score("answers:numeric", said("4"), answer)
    assert found.reward is None
    assert found.error is not None


async def test_a_scenario_without_the_answer_is_null_not_zero():
    found = await score("answers:exact_match", said("4"), answer_field="solution")
    assert (found.reward, found.error) == (None, "KeyError: 'solution'")


async def test_a_cut_reply_is_marked():
    cut = await score("answers:exact_match", said("4", finish_reason="length"))
    assert (cut.reward, cut.components) == (1.0, {"cut": 1.0})


@given(st.integers(-(10**12), 10**12))
def test_a_number_is_read_with_its_separators(value):
    assert numbers(f"so {value:,} is it.") == numbers(str(value)) == [float(value)]


async def test_regex_within_and_whole():
    rewards = [
        (await score("answers:regex", said("a\n42"), pattern=r"\d+", where=where)).reward
        for where in ("within", "whole")
    ]
    assert rewards == [1.0, 0.0]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("reply", "reward", "why"),
    [
        ('{"n": 1}', 1.0, "valid"),
        ('Here:\n```json\n{"n": 1}\n```', 1.0, "valid"),
        ('{"n": "1"}', 0.0, "$.n: '1' is not of type 'integer'"),
        ("{}", 0.0, "'n' is a required property"),
        ("[" * 100_000, 0.0, "not JSON"),
        ("NaN", 0.0, "NaN is not JSON"),
        ("no", 0.0, "not JSON"),
    ],
)
async def test_json_schema(reply, reward, why):
    found = await score("answers:json_schema", said(reply), schema=SCHEMA)
    assert found.reward == reward
    assert why in found.explanation


async def test_a_wrong_schema_is_the_scorers_error():
    found = await score("answers:json_schema", said("{}"), schema={"type": "no such type"})
    assert found.reward is None
    assert "SchemaError" in found.error


async def test_format_is_a_share_of_the_replies_and_null_without_any():
    assert (await score("conduct:format_share", said("1", "x"), pattern=r"\d")).reward == 0.5
    assert (await score("conduct:format_share", trajectory(), pattern=r"\d")).reward is None


@pytest.mark.parametrize(("sampled", "reward"), [(6, 0.0), (8, -0.5), (10, -1.0), (20, -1.0)])
async def test_length_shaping_falls_over_the_buffer(sampled, reward):
    long = trajectory(mask=(False, *[True] * sampled))
    assert (await score("conduct:length_shaping", long, limit=10, buffer=4)).reward == reward


async def test_tool_errors_are_counted():
    messages = (Message("tool", "Error: no"), Message("tool", "ok"))
    found = await score("conduct:tool_success", trajectory(messages=messages))
    assert (found.reward, found.components) == (0.5, {"tool_calls": 2.0, "tool_errors": 1.0})
    assert (await score("conduct:tool_success", trajectory())).reward == 1.0


async def test_an_outcome_that_was_not_reported_is_null():
    tests = trajectory(metrics={"passed": 3.0, "tests": 4.0})
    assert (await score("conduct:outcome", tests, metric="passed", total="tests")).reward == 0.75
    assert (await score("conduct:outcome", tests, metric="passed", threshold=4)).reward == 0.0
    assert (await score("conduct:outcome", replace(tests, metrics={}), metric="passed")).reward is None


@pytest.mark.parametrize("args", [{}, {"pattern": "x", "wher": "whole"}])
def test_arguments_that_the_function_does_not_take_are_refused_before_anything_starts(args):
    with pytest.raises(ConfigError, match=r"answers:regex.*args"):
        make_scorer(RewardSettings(scorer="tasks.rewards.answers:regex", args=args))
