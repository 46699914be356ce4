"""Which scenarios a step plays, and what a scenario file may hold."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import ScenarioError
from storage.records import Scenario
from tasks.scenarios import call_for_scenarios, draw_scenarios, load_scenarios

SCENARIOS = [Scenario(f"s{n}", {}) for n in range(5)]


@given(steps=st.integers(1, 20), count=st.integers(1, 8), seed=st.integers(0, 9))
def test_every_scenario_is_played_equally_often(steps, count, seed):
    drawn = [
        scenario.scenario_id
        for step in range(steps)
        for scenario, _ in draw_scenarios(SCENARIOS, step=step, count=count, seed=seed)
    ]
    times = [drawn.count(s.scenario_id) for s in SCENARIOS]
    assert max(times) - min(times) <= 1


def test_a_scenario_drawn_twice_in_a_step_makes_two_groups():
    drawn = draw_scenarios(SCENARIOS[:1], step=0, count=3, seed=0)
    assert [group_no for _, group_no in drawn] == [0, 1, 2]


def test_the_draw_does_not_depend_on_what_was_drawn_before():
    once = [draw_scenarios(SCENARIOS, step=step, count=2, seed=3) for step in range(4)]
    assert draw_scenarios(SCENARIOS, step=3, count=2, seed=3) == once[3]
    assert draw_scenarios(SCENARIOS, step=0, count=5, seed=4) != draw_scenarios(
        SCENARIOS, step=0, count=5, seed=3
    )


def test_a_scenario_file_is_read_in_order(tmp_path):
    path = tmp_path / "s.jsonl"
    rows = [
        {"scenario_id": "b", "payload": {"x": 1}},
        {"scenario_id": "a", "payload": {}, "metadata": {"y": 2}},
    ]
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    assert load_scenarios(path) == {
        f"{path}:1": Scenario("b", {"x": 1}),
        f"{path}:3": Scenario("a", {}, {"y": 2}),
    }


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "s.jsonl:2 is not JSON"),
        ("[]", "not an object"),
        ('{"payload": {}}', "scenario_id is not a text"),
        ('{"scenario_id": "", "payload": {}}', "scenario_id is not a text"),
        ('{"scenario_id": "a", "payload": 1}', "payload and metadata"),
        ('{"scenario_id": "a", "payload": {}, "reward": 1}', "unknown fields: reward"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, wrong):
    path = tmp_path / "s.jsonl"
    path.write_text('{"scenario_id": "ok", "payload": {}}\n' + line)
    with pytest.raises(ScenarioError, match=wrong):
        load_scenarios(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenarios(tmp_path / "missing.jsonl")


def test_a_parquet_file_holds_scenarios_as_jsonl_does(tmp_path):
    path = tmp_path / "s.parquet"
    table = pa.table({"scenario_id": ["a", "b"], "payload": ['{"x": 1}', '{"x": 2}']})
    pq.write_table(table, path)
    assert list(load_scenarios(path).values()) == [Scenario("a", {"x": 1}), Scenario("b", {"x": 2})]
    pq.write_table(table.set_column(1, "payload", [["{}", "{"]]), path)
    with pytest.raises(ScenarioError, match="row 1: payload is text that is not JSON"):
        load_scenarios(path)


def test_rows_of_any_other_table_are_payloads(tmp_path):
    pq.write_table(pa.table({"question": ["Who?"], "id": [7]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"question": ["Who?"]}), tmp_path / "b.parquet")
    assert list(load_scenarios(tmp_path / "a.parquet").values()) == [
        Scenario("7", {"question": "Who?", "id": 7})
    ]
    assert list(load_scenarios(tmp_path / "b.parquet").values()) == [Scenario("b-0", {"question": "Who?"})]


def test_a_data_set_that_hugging_face_saved_is_a_folder(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    table = pa.table({"question": ["Who?", "What?"]})
    with pa.ipc.new_stream(str(folder / "data-00000-of-00001.arrow"), table.schema) as stream:
        stream.write_table(table)
    assert [s.scenario_id for s in load_scenarios(folder).values()] == ["train-0", "train-1"]
    with pytest.raises(ScenarioError, match="Name the folder of one split"):
        load_scenarios(tmp_path)


def some_scenarios(split, seed):
    yield Scenario(f"{split}-{seed}", {})
    yield {"scenario_id": f"{split}-more", "payload": {"x": 1}}


def wrong_scenarios(split, seed):
    yield {"scenario_id": "a"}


def test_a_function_yields_scenarios_or_their_fields():
    found = call_for_scenarios(f"{__name__}:some_scenarios", "train", 3)
    assert list(found.values()) == [Scenario("train-3", {}), Scenario("train-more", {"x": 1})]
    with pytest.raises(ScenarioError, match="wrong_scenarios, train scenario 0: payload"):
        call_for_scenarios(f"{__name__}:wrong_scenarios", "train", 3)
