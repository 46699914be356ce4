"""The search environment: what is graded, what is bounded, and questions from the common files."""

import json

import pytest

from storage.errors import ConfigError, ScenarioError
from storage.records import Message, Scenario, StopReason, ToolCall
from tasks.environments.search import Search
from tasks.environments.search.grading import exact_match, f1, stated_answer
from tasks.environments.search.questions import load_questions

SCENARIO = Scenario("s", {"question": "Who founded Acme?", "answers": ["Wile E. Coyote", "the Coyote"]})


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {"id": "1", "title": "Acme", "text": "Acme was founded by Wile E. Coyote. " + "x" * 500},
        {"id": "2", "title": "Road", "text": "A road runner."},
        {"id": "3", "title": "Desert", "text": "Sand."},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def call(**arguments):
    return Message("assistant", None, tool_calls=(ToolCall("a", "search", json.dumps(arguments)),))


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Answer: Wile", "Wile"),
        ("I think so.\nAnswer: a\n**Answer:** b", "b"),
        ("The answer: Wile", None),
        ("Answer:", None),
        ("Wile", None),
    ],
)
def test_the_answer_stands_behind_its_label(reply, answer):
    assert stated_answer(reply) == answer


@pytest.mark.parametrize(
    ("answer", "exact", "overlap"),
    [
        ("wile e coyote", 1.0, 1.0),
        ("The Coyote!", 1.0, 1.0),
        ("A Coyote", 1.0, 1.0),
        ("Wile Coyote", 0.0, 0.8),
        ("Road Runner", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_grades_are_squads(answer, exact, overlap):
    assert exact_match(answer, SCENARIO.payload["answers"]) == exact
    assert f1(answer, SCENARIO.payload["answers"]) == pytest.approx(overlap)


@pytest.mark.parametrize(
    ("reply", "reward"), [("Answer: the coyote", 1.0), ("Answer: nobody", 0.0), ("the coyote", -0.1)]
)
async def test_the_reward_is_format_and_exact_match(corpus, reply, reward):
    world = Search(corpus)
    await world.reset(SCENARIO)
    step = await world.step(Message("assistant", reply))
    assert step.done
    assert step.reward == pytest.approx(reward)
    assert step.metrics["searched"] == 0.0


async def test_a_search_shows_bounded_documents_and_is_rewarded_once_where_asked(corpus):
    world = Search(corpus, documents=2, max_document=40, search_reward=0.3)
    await world.reset(SCENARIO)
    for _ in range(2):
        step = await world.step(call(query_list=["Acme founded", "nonsense"]))
    [message] = step.messages
    assert "[1] Acme: Acme was founded by Wile E. Coyote. xxxx\n" in message.content
    assert message.content.endswith("Results for 'nonsense':\nnothing was found")
    last = await world.step(Message("assistant", "Answer: Road Runner"))
    assert last.reward == pytest.approx(0.3)
    assert (last.metrics["searched"], last.metrics["answer_found"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, "query_list: Field required"),
        ({"query_list": []}, "at least 1 item"),
        ({"query_list": ["a"] * 3}, "at most 2 items"),
        ({"query_list": ["a" * 11]}, "at most 10 characters"),
        ({"query_list": "a"}, "valid list"),
    ],
)
async def test_queries_are_bounded_and_what_is_wrong_goes_back_to_the_policy(corpus, arguments, wrong):
    world = Search(corpus, max_queries=2, max_query=10)
    await world.reset(SCENARIO)
    step = await world.step(call(**arguments))
    assert step.messages[0].content.startswith("Error: ")
    assert wrong in step.messages[0].content
    assert step.metrics["tool_errors"] == 1


async def test_an_episode_that_a_limit_ended_has_stated_nothing(corpus):
    world = Search(corpus)
    await world.reset(SCENARIO)
    assert (await world.cut(StopReason.MAX_TURNS)).reward == pytest.approx(-0.1)


@pytest.mark.parametrize(
    "row",
    [
        {"id": "q", "question": "Who?", "answer": "A"},  # HotpotQA
        {"id": "q", "question": "Who?", "golden_answers": ["A"]},  # FlashRAG's NQ, as Search-R1 takes it
        {"_id": "q", "question": "Who?", "answers": {"text": ["A"], "answer_start": [3]}},  # SQuAD
    ],
)
def test_questions_of_the_common_sets_are_read(tmp_path, row):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(row))
    assert load_questions(str(path)) == [Scenario("q", {"question": "Who?", "answers": ["A"]})]


def test_parquet_questions_without_ids_are_numbered(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = str(tmp_path / "q.parquet")
    pq.write_table(pa.table({"question": ["Who?", "What?"], "answer": [["A", "B"], ["C"]]}), path)
    assert [s.scenario_id for s in load_questions(path)] == ["question-0", "question-1"]
    world = Search(path, {"train": path})
    assert len(world.scenarios("train", 2, 0)) == 2
    with pytest.raises(ScenarioError, match="has 2 questions, and 3 were asked for"):
        world.scenarios("train", 3, 0)
    with pytest.raises(ScenarioError, match="names no file for the validation split"):
        world.scenarios("validation", 1, 0)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [({"q": "Who?"}, "row 0 has no text under `question`"), ({"question": "Who?"}, "no answer")],
)
def test_a_wrong_question_is_named(tmp_path, row, wrong):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(ScenarioError, match=wrong):
        load_questions(str(path))


def test_a_missing_corpus_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="no Parquet or JSONL"):
        Search(str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    "args",
    [{}, {"corpus": "c", "retriever": {"kind": "http", "url": "http://x"}}, {"corpus": "c", "documents": 0},
     {"corpus": "c", "retriever": {"kind": "bm26"}}, {"corpus": "c", "grade": "bleu"}],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(args):
    with pytest.raises(ValueError):
        Search(**args)
