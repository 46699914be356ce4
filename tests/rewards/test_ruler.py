"""RULER over real HTTP: whatever the judge does, the right score or none, and every call is kept."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from storage.errors import ConfigError
from storage.records import GroupKey, Message, Scenario, StopReason
from storage.replies import StoredReplies
from storage.store import Store
from tasks.rewards.judge import check_judge
from tasks.rewards.scorers import make_scorer
from tasks.settings import JudgeSettings, RewardSettings
from tests.rewards.judges import Answer, judge_server, verdicts
from tests.rewards.test_programmatic import trajectory

SCENARIOS = {"s": Scenario("s", {})}
PROMPT = (Message("system", "Be brief."), Message("user", "Say <b> hello."))


def group(number: int = 0, size: int = 3, **fields):
    """A group whose members answer differently."""
    key = GroupKey("r", 0, "train", "s", number)
    return [
        trajectory(key=key, sample_no=n, messages=(*PROMPT, Message("assistant", f"hello {n}")), **fields)
        for n in range(size)
    ]


def settings(url: str, **judge) -> RewardSettings:
    judge = {"model": "j", "base_url": url, "api_key_env": None, "retries": 2, "timeout": 5, **judge}
    return RewardSettings(scorer="ruler", judge=JudgeSettings(**judge))


def ranked(number: int, request: dict) -> Answer:
    """Scores a trajectory by the number that it says, whatever its place."""
    shown = re.findall(r'<trajectory id="(\d+)">\n.*?hello (\d+)', request["messages"][1]["content"])
    return Answer(verdicts({label: int(said) / 10 for label, said in shown}))


async def test_scores_go_to_the_trajectories_that_they_are_of():
    with judge_server(ranked) as server:
        scorer = make_scorer(settings(server.url))
        members = group() + group(1, 4)
        scores = await scorer.score(members, SCENARIOS)
    assert [score.reward for score in scores] == [0.0, 0.1, 0.2, 0.0, 0.1, 0.2, 0.3]
    assert [score.trajectory_id for score in scores] == [t.trajectory_id for t in members]
    assert len(server.requests) == len(scorer.judge_calls) == 2
    call = next(c for c in scorer.judge_calls if c.group_id == members[0].key.group_id)
    assert (call.error, call.cached, call.prompt_tokens, call.completion_tokens) == (None, False, 100, 10)
    assert scores[0].judge_call_ids == (call.judge_call_id,)
    assert set(call.trajectory_ids) == {t.trajectory_id for t in members[:3]}


async def test_shared_messages_are_sent_once_and_cannot_end_their_element():
    with judge_server(ranked) as server:
        await make_scorer(settings(server.url)).score(group(), SCENARIOS)
    content = server.requests[0]["messages"][1]["content"]
    assert content.count("Be brief.") == 1
    assert "Say <b>" not in content
    assert "Say \\u003cb>" in content
    schema = server.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["scores"]["minItems"] == 3


async def test_places_are_drawn_for_each_group_and_the_same_again():
    def order(requests):
        return [re.findall(r"hello (\d+)", r["messages"][1]["content"]) for r in requests]

    members = [t for number in range(8) for t in group(number, 4)]
    with judge_server(ranked) as server:
        await make_scorer(settings(server.url, concurrency=1)).score(members, SCENARIOS)
        first = order(server.requests)
        await make_scorer(settings(server.url, concurrency=1)).score(members, SCENARIOS)
    assert sorted(order(server.requests)[8:]) == sorted(first)
    assert len({tuple(places) for places in first}) > 1


BAD = [
    verdicts({"1": 0.5, "2": 0.5}),
    verdicts({"1": 0.5, "2": 0.5, "3": "0.8"}),
    verdicts({"1": 0.5, "2": 0.5, "3": float("nan")}),
    verdicts({"1": 0.5, "2": 0.5, "3": 1.7}),
    verdicts({"1": 0.5, "2": 0.5, "4": 0.5}),
    "",
    '{"scores": [{"trajectory": "1", "sco',
    "They are all fine.",
]


@pytest.mark.parametrize("bad", BAD)
async def test_unusable_reply_is_asked_for_once_more(bad):
    with judge_server(lambda n, request: Answer(bad) if n == 0 else ranked(n, request)) as server:
        scorer = make_scorer(settings(server.url))
        scores = await scorer.score(group(), SCENARIOS)
    assert [score.reward for score in scores] == [0.0, 0.1, 0.2]
    assert "cannot be used" in server.requests[1]["messages"][-1]["content"]
    first, second = scorer.judge_calls
    assert first.reply == bad
    assert first.error
    assert second.error is None
    assert scores[0].judge_call_ids == (first.judge_call_id, second.judge_call_id)


@pytest.mark.parametrize("bad", BAD)
async def test_two_unusable_replies_leave_the_group_unscored_and_are_kept(bad):
    with judge_server(lambda n, request: Answer(bad)) as server:
        scorer = make_scorer(settings(server.url))
        scores = await scorer.score(group(), SCENARIOS)
    assert [score.reward for score in scores] == [None] * 3
    assert all("no usable answer" in score.error for score in scores)
    assert [call.reply for call in scorer.judge_calls] == [bad, bad]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "trouble", [Answer(status=429, headers={"Retry-After": "0"}), Answer(status=500), Answer(status=503)]
)
async def test_trouble_that_passes_is_sat_out(trouble):
    with judge_server(lambda n, request: trouble if n == 0 else ranked(n, request)) as server:
        scores = await make_scorer(settings(server.url)).score(group(), SCENARIOS)
    assert [score.reward for score in scores] == [0.0, 0.1, 0.2]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (Answer(status=500), "InternalServerError"),
        (Answer(status=400), "BadRequestError"),
        (Answer(seconds=2), "APITimeoutError"),
    ],
)
async def test_trouble_that_stays_leaves_the_group_unscored_and_the_others_scored(trouble, words):
    def script(number: int, request: dict) -> Answer:
        return (
            trouble
            if request["messages"][1]["content"].count("<trajectory") == 2
            else ranked(number, request)
        )

    with judge_server(script) as server:
        scorer = make_scorer(settings(server.url, retries=0, timeout=1))
        scores = await scorer.score(group(0, 2) + group(1, 3), SCENARIOS)
    assert [score.reward for score in scores] == [None, None, 0.0, 0.1, 0.2]
    assert words in scores[0].error
    [failed] = [call for call in scorer.judge_calls if call.error]
    assert failed.reply is None


async def test_failed_rollouts_are_not_shown_and_stay_unscored():
    members = group()
    members[1] = replace(members[1], stop_reason=StopReason.ENVIRONMENT_ERROR)
    with judge_server(ranked) as server:
        scores = await make_scorer(settings(server.url)).score(members, SCENARIOS)
    assert [score.reward for score in scores] == [0.0, None, 0.2]
    assert "hello 1" not in server.requests[0]["messages"][1]["content"]


async def test_budget_ends_the_asking_and_nothing_else():
    with judge_server(ranked) as server:
        scorer = make_scorer(settings(server.url, max_calls=2, concurrency=1))
        scores = await scorer.score([t for n in range(4) for t in group(n, 2)], SCENARIOS)
    assert len(server.requests) == 2
    assert sum(score.reward is None for score in scores) == 4
    assert any("judge.max_calls = 2 is reached" in (score.error or "") for score in scores)


async def test_cost_is_reckoned_and_bounded():
    prices = {"prompt_price": 2.0, "completion_price": 30.0}
    with judge_server(ranked) as server:
        scorer = make_scorer(settings(server.url, max_cost=0.0009, concurrency=1, **prices))
        await scorer.score([t for n in range(4) for t in group(n, 2)], SCENARIOS)
    costs = [call.cost for call in scorer.judge_calls if call.reply is not None]
    assert costs == pytest.approx([0.0005, 0.0005])  # 100 x 2 + 10 x 30 in millionths
    assert len(server.requests) == 2


async def test_a_reply_is_paid_for_once(tmp_path):
    replies = StoredReplies(Store(tmp_path / "store"))
    with judge_server(ranked) as server:
        first = await make_scorer(settings(server.url), replies).score(group(), SCENARIOS)
        scorer = make_scorer(settings(server.url), replies)
        second = await scorer.score(group(), SCENARIOS)
        assert len(server.requests) == 1
        assert [s.reward for s in second] == [s.reward for s in first]
        assert [call.cached for call in scorer.judge_calls] == [True]
        # Another rubric is another question.
        other = RewardSettings(scorer="ruler", judge=settings(server.url).judge, rubric="Shorter is better.")
        await make_scorer(other, replies).score(group(), SCENARIOS)
    assert len(server.requests) == 2
    assert make_scorer(other).digest != scorer.digest


async def test_requests_in_flight_are_bounded():
    def slow(number: int, request: dict) -> Answer:
        return replace(ranked(number, request), seconds=0.05)

    with judge_server(slow) as server:
        await make_scorer(settings(server.url, concurrency=3)).score(
            [t for n in range(12) for t in group(n, 2)], SCENARIOS
        )
    assert server.most_in_flight == 3


def test_missing_key_and_silent_endpoint_are_found_before_anything_starts(monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(ConfigError, match="JUDGE_KEY holds no key"):
        check_judge(JudgeSettings(model="j", base_url="http://127.0.0.1:9/v1", api_key_env="JUDGE_KEY"))
    with pytest.raises(ConfigError, match="does not answer"):
        check_judge(JudgeSettings(model="j", base_url="http://127.0.0.1:9/v1", api_key_env=None))
    with judge_server(ranked) as server:
        check_judge(JudgeSettings(model="j", base_url=server.url, api_key_env=None))


async def test_the_key_is_sent_and_never_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_KEY", "canary-4711")
    store = Store(tmp_path / "store")
    with judge_server(ranked) as server:
        scorer = make_scorer(settings(server.url, api_key_env="JUDGE_KEY"), StoredReplies(store))
        await scorer.score(group(), SCENARIOS)
    assert server.keys == {"Bearer canary-4711"}
    assert "canary" not in json.dumps([vars(call) for call in scorer.judge_calls], default=str)
    assert all(b"canary" not in file.read_bytes() for file in store.root.rglob("*") if file.is_file())
