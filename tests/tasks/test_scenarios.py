"""Which scenarios a step plays, and what a scenario file may hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import ScenarioError
from storage.records import Scenario
from tasks.scenarios import draw_scenarios, load_scenarios

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
