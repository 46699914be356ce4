import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.catalog import connect
from storage.chats import from_openai, to_openai
from storage.errors import StoreError
from storage.exports import export_rows, write_jsonl, write_parquet_rows
from storage.imports import import_chats
from storage.records import Message, ToolCall
from storage.store import Store
from tests.storage.builder import members

TEXT = st.none() | st.text()
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXT,
    reasoning=TEXT,
    tool_calls=st.lists(st.builds(ToolCall, st.text(), st.text(), st.text()), max_size=2).map(tuple),
    tool_call_id=TEXT,
    name=TEXT,
)


@given(messages=st.lists(MESSAGES, min_size=1, max_size=4).map(tuple))
def test_chats_round_trip(messages):
    assert from_openai(json.loads(json.dumps(to_openai(messages))), "here") == messages


def test_text_parts_become_one_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert from_openai([{"role": "user", "content": parts}], "here") == (Message("user", "ab"),)


def test_chats_hold_every_episode_with_its_reward(store):
    rows = list(export_rows(store, "demo", "chats"))
    assert len(rows) == 24
    assert [row["reward"] for row in rows].count(None) == 2
    assert rows[0]["messages"] == to_openai(members("demo", 0, "train")[0].messages)


def test_sft_takes_what_is_above_the_bound_and_0_is_not(store):
    rows = list(export_rows(store, "demo", "sft", step=0))
    assert sorted(row["reward"] for row in rows) == [0.25, 1.0, 1.0, 1.0, 2.0, 3.0]
    assert len(list(export_rows(store, "demo", "sft", step=0, min_reward=2.0))) == 1


def test_preferences_share_the_prompt_and_differ_in_reward(store):
    rows = list(export_rows(store, "demo", "preferences", step=0))
    assert {row["scenario_id"] for row in rows} == {"easy", "it's hard"}  # the third group is all equal
    for row in rows:
        assert row["prompt"] == [{"role": "user", "content": f"Play {row['scenario_id']}."}]
        assert row["chosen"][0]["role"] == row["rejected"][0]["role"] == "assistant"
        assert row["chosen_reward"] > row["rejected_reward"]


def test_rewards_are_those_of_the_scorer_that_is_named(store):
    assert {row["reward"] for row in export_rows(store, "demo", "sft", step=0, scorer="judge")} == {0.5}


def test_exported_parquet_holds_plain_columns(store, tmp_path):
    rows = list(export_rows(store, "demo", "chats"))
    assert write_parquet_rows(rows, tmp_path / "x.parquet") == 24
    table = pq.read_table(tmp_path / "x.parquet")
    assert table["reward"].to_pylist() == [row["reward"] for row in rows]
    assert table["messages"].to_pylist()[0][0]["content"] == "Play easy."


def test_unknown_format_and_run_are_refused(store):
    with pytest.raises(StoreError, match="the formats are chats"):
        export_rows(store, "demo", "csv")
    with pytest.raises(StoreError, match="no run 'nope'"):
        export_rows(store, "nope", "chats")


def test_what_was_exported_can_be_imported_as_a_run(store, tmp_path):
    rows = list(export_rows(store, "demo", "chats", step=0))
    write_jsonl(rows, tmp_path / "chats.jsonl")
    assert import_chats(store, tmp_path / "chats.jsonl", "imported") == 12
    again = list(export_rows(store, "imported", "chats"))
    assert [(row["messages"], row["reward"]) for row in again] == [(r["messages"], r["reward"]) for r in rows]
    with connect(store.root) as connection:
        groups = connection.execute("SELECT rollouts FROM groups WHERE run = 'imported'").fetchall()
    assert groups == [(4,)] * 3


def test_separators_inside_a_line_do_not_end_it(tmp_path):
    chat = {"messages": [{"role": "user", "content": "a\u2028b\u0085c"}]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat, ensure_ascii=False) + "\n\n", encoding="utf-8")
    assert import_chats(Store(tmp_path / "store"), tmp_path / "chats.jsonl", "run") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: it is no JSON"),
        ("[]", "line 2: it must be an object"),
        ("{}", "line 2: `messages` must be a list"),
        ('{"messages": []}', "one at least"),
        ('{"messages": [{"role": "robot"}]}', "line 2, message 0: .*role"),
        ('{"messages": [{"role": "user", "content": 5}]}', "only text"),
        ('{"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}', "tool call needs"),
        ('{"messages": [{"role": "user", "content": "x"}], "reward": NaN}', "finite number"),
        ('{"messages": [{"role": "user", "content": "x"}], "reward": true}', "finite number"),
    ],
)
def test_line_that_is_no_chat_is_named_and_nothing_is_stored(line, message, tmp_path):
    good = '{"messages": [{"role": "user", "content": "x"}]}'
    (tmp_path / "chats.jsonl").write_text(f"{good}\n{line}\n")
    store = Store(tmp_path / "store")
    with pytest.raises(StoreError, match=message):
        import_chats(store, tmp_path / "chats.jsonl", "run")
    assert not store.root.exists()


def test_import_into_a_run_that_exists_is_refused(store, tmp_path):
    (tmp_path / "chats.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}')
    with pytest.raises(StoreError, match="exists already"):
        import_chats(store, tmp_path / "chats.jsonl", "demo")
