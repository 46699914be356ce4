import pytest

from storage.catalog import connect
from storage.errors import StoreError
from storage.questions import ask, find_question, list_questions
from tests.storage.builder import make_store

QUESTIONS = {question.name: question for question in list_questions()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with connect(make_store(tmp_path_factory.mktemp("questions") / "store").root) as connection:
        yield connection


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_runs_on_a_full_and_an_empty_store(name, filled, tmp_path):
    everything = ask(filled, QUESTIONS[name])
    with connect(tmp_path) as empty:
        nothing = ask(empty, QUESTIONS[name])
    assert nothing.num_rows == 0
    assert nothing.schema == everything.schema


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_answers_for_one_run_alone(name, filled):
    assert ask(filled, QUESTIONS[name], run="another").num_rows == 0
    # As text, because an undefined correlation is NaN, which equals nothing.
    assert str(ask(filled, QUESTIONS[name], run="demo").to_pylist()) == str(
        ask(filled, QUESTIONS[name]).to_pylist()
    )


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_has_a_title_and_an_order(name):
    assert QUESTIONS[name].title
    assert "ORDER BY" in QUESTIONS[name].sql


def test_at_least_fifteen_questions_are_shipped():
    assert len(QUESTIONS) >= 15


def test_unknown_question_is_answered_with_the_names_there_are():
    with pytest.raises(StoreError, match="reward_by_step"):
        find_question("nope")


def test_unknown_parameter_is_refused(filled):
    with pytest.raises(StoreError, match="no parameter step"):
        ask(filled, QUESTIONS["reward_by_step"], step=1)


def test_run_name_is_a_value_and_never_sql(filled):
    assert ask(filled, QUESTIONS["stop_reasons"], run="x' OR '1'='1").num_rows == 0


def test_tool_failures_are_counted_by_policy_version(filled):
    rows = ask(filled, QUESTIONS["tool_failures"]).to_pylist()
    assert [(row["policy_version"], row["answers"], row["failures"]) for row in rows] == [
        (0, 54, 22),
        (1, 54, 22),
    ]


def test_scenarios_that_never_succeed_are_named(filled):
    rows = ask(filled, QUESTIONS["never_solved"]).to_pylist()
    assert {row["scenario_id"] for row in rows} == {'tricky "100%"'}


def test_change_between_two_steps_is_of_the_same_scenario(filled):
    rows = ask(filled, QUESTIONS["changes_between_steps"], before=0, after=1).to_pylist()
    easy = next(row for row in rows if row["scenario_id"] == "easy" and row["split"] == "train")
    assert (easy["reward_before"], easy["reward_after"]) == pytest.approx((0.75, 4.25 / 3))
