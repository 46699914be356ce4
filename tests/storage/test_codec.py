"""Any record comes back exactly: None stays None, empty stays empty, 0.0 stays a reward."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.catalog import connect
from storage.codec import (
    scenarios_from,
    scenarios_table,
    scores_table,
    to_json,
    trajectories_from,
    trajectories_table,
)
from storage.records import GroupKey, Message, Scenario, Score, StopReason, ToolCall, Trajectory, Turn
from storage.schemas import SCENARIOS, SCORES, TRAJECTORIES
from storage.store import Store, write_parquet
from tests.storage.builder import trajectory as example

TEXT = st.one_of(
    st.sampled_from(["", " ", "é🎲\u200b", "a'b\"c", "line\nbreak", "\x00\x1b[31m", "%s ../.."]), st.text()
)
MAYBE_TEXT = st.none() | TEXT
INT32 = st.integers(0, 2**31 - 1)
FLOATS = st.floats(allow_nan=False)
FLOATS32 = st.floats(width=32, allow_nan=False)
TIMES = st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(ZoneInfo("UTC"))).map(
    lambda time: time.replace(fold=0)
)
METRICS = st.dictionaries(TEXT, FLOATS, max_size=3)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(TEXT, JSON, max_size=3)


def tuples(elements, max_size=4):
    return st.lists(elements, max_size=max_size).map(tuple)


MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=MAYBE_TEXT,
    reasoning=MAYBE_TEXT,
    tool_calls=tuples(st.builds(ToolCall, id=TEXT, name=TEXT, arguments=TEXT)),
    tool_call_id=MAYBE_TEXT,
    name=MAYBE_TEXT,
)
TURNS = st.builds(
    Turn,
    turn=INT32,
    segment=INT32,
    start=INT32,
    end=INT32,
    finish_reason=st.sampled_from(["stop", "length"]),
    policy_version=INT32,
    seed=INT32,
    reward=st.none() | FLOATS,
    started_at=TIMES,
    seconds=FLOATS,
)
TRAJECTORY = st.builds(
    Trajectory,
    key=st.builds(
        GroupKey,
        run=st.just("demo"),
        step=st.just(3),
        split=st.just("train"),
        scenario_id=TEXT,
        group_no=INT32,
    ),
    sample_no=INT32,
    policy_version=INT32,
    messages=tuples(MESSAGES),
    token_ids=tuples(INT32),
    mask=tuples(st.booleans()),
    logprobs=tuples(st.none() | FLOATS32),
    segment_starts=tuples(INT32),
    turns=tuples(TURNS, max_size=2),
    prompt_digest=TEXT,
    stop_reason=st.sampled_from(StopReason),
    started_at=TIMES,
    seconds=FLOATS,
    temperature=FLOATS,
    error=MAYBE_TEXT,
    environment_reward=st.none() | FLOATS,
    metrics=METRICS,
    metadata=METADATA,
    seat=MAYBE_TEXT,
    match_id=MAYBE_TEXT,
)


def spelling(trajectory):
    return repr(replace(trajectory, metadata=to_json(trajectory.metadata)))


def through_parquet(table, path):
    write_parquet(table, path)
    return pq.ParquetFile(path).read()


@settings(deadline=None, max_examples=150)
@given(trajectories=st.lists(TRAJECTORY, max_size=3))
def test_trajectories_round_trip_exactly(trajectories, tmp_path_factory):
    path = tmp_path_factory.mktemp("codec") / "t.parquet"
    table = through_parquet(trajectories_table(trajectories), path)
    found = trajectories_from(table, run="demo", step=3, split="train")
    assert found == trajectories
    # `==` takes 0.0 for -0.0 and False for 0; their spelling tells them apart. The order of metadata is free.
    assert [spelling(t) for t in found] == [spelling(t) for t in trajectories]


@settings(deadline=None)
@given(
    scenarios=st.lists(
        st.builds(Scenario, scenario_id=TEXT, payload=METADATA, metadata=METADATA),
        max_size=4,
        unique_by=lambda scenario: scenario.scenario_id,
    )
)
def test_scenarios_round_trip_in_their_order(scenarios, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("codec"))
    store.publish_table(SCENARIOS, scenarios_table(scenarios), run="demo", split="train")
    assert scenarios_from(store.read(SCENARIOS, run="demo", split="train")) == scenarios


@settings(deadline=None)
@given(reward=st.none() | FLOATS, components=METRICS, explanation=MAYBE_TEXT, calls=tuples(TEXT))
def test_scores_keep_null_apart_from_zero(reward, components, explanation, calls, tmp_path_factory):
    score = Score("t", "scorer", reward, components, explanation, None, calls)
    store = Store(tmp_path_factory.mktemp("codec"))
    where = {"run": "demo", "step": 0, "split": "train", "scorer": "scorer"}
    store.publish_table(SCORES, scores_table([score], "digest"), **where)
    (row,) = store.read(SCORES, **where).to_pylist(maps_as_pydicts="strict")
    assert (row["reward"], row["components"]) == (reward, components)
    assert (row["explanation"], row["judge_call_ids"]) == (explanation, list(calls))


@given(value=JSON)
def test_equal_values_have_equal_json(value):
    assert to_json({"a": value, "b": 1}) == to_json({"b": 1, "a": value})


def test_sql_reads_the_very_values(tmp_path):
    key = GroupKey("demo", 0, "train", "é' \"%\n", 0)
    trajectory = replace(
        example(key, 0, reward=0.0, turns=0),
        messages=(Message("user", ""), Message("assistant", None)),
        token_ids=(2**31 - 1, 0),
        mask=(False, True),
        logprobs=(None, -0.5),
    )
    store = Store(tmp_path)
    store.publish_table(TRAJECTORIES, trajectories_table([trajectory]), run="demo", step=0, split="train")
    with connect(tmp_path) as connection:
        row = connection.execute(
            "SELECT scenario_id, token_ids, mask, logprobs, error, environment_reward, metrics, "
            "[m.content FOR m IN messages] FROM trajectories"
        ).fetchone()
    assert row == (key.scenario_id, [2**31 - 1, 0], [False, True], [None, -0.5], None, 0.0, {}, ["", None])
