"""The invented worlds: splits share no name, and several hops cannot be answered without search."""

import itertools
import json
import re
from collections import Counter

import pytest

from storage.errors import ScenarioError
from storage.records import Message, ToolCall
from tasks.environments.search import SyntheticSearch
from tasks.environments.search.synthetic import make_questions, make_world


def words(world):
    return {word for names in world.names.values() for name in names for word in name.split()} - {
        "Works",
        "Group",
    }


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1), (7, 7)])
def test_no_held_out_name_is_ever_trained_on(seeds):
    train, held_out = make_world("train", seeds[0], 60), make_world("validation", seeds[1], 60)
    assert not words(train) & words(held_out)
    read = " ".join(d.text for d in train.documents)
    assert not any(name in read for names in held_out.names.values() for name in names)


def test_a_world_and_its_scenarios_are_functions_of_their_arguments():
    assert make_world("train", 3, 20) == make_world("train", 3, 20)
    world = SyntheticSearch(companies=20)
    assert world.scenarios("train", 9, 3) == world.scenarios("train", 9, 3)
    assert world.scenarios("train", 9, 3) != world.scenarios("train", 9, 4)
    with pytest.raises(ScenarioError, match="questions of \\[2, 3\\] hops, and 9999"):
        world.scenarios("train", 9999, 3)


def test_questions_of_several_hops_are_answered_by_no_single_document():
    world = make_world("validation", 0, 60)
    questions = make_questions(world, (2, 3))
    assert len(questions) > 300
    for question, answer, path in questions:
        assert path[0] in question
        assert answer not in question
        assert not any(path[0] in d.text and answer in d.text for d in world.documents)


async def grade(world, scenario, answer):
    await world.reset(scenario)
    return (await world.step(Message("assistant", f"Answer: {answer}"))).metrics["exact_match"]


async def test_without_search_the_best_guesses_are_worthless():
    """Neither what training taught, nor the question's own words, nor the commonest answer is the answer."""
    world = SyntheticSearch(companies=60)
    train, held_out = world.scenarios("train", 200, 0), world.scenarios("validation", 200, 0)
    seen = {s.payload["answers"][0] for s in train}
    assert not any([await grade(world, s, guess) for s in held_out for guess in list(seen)[:20]])
    assert not seen & {s.payload["answers"][0] for s in held_out}
    named = [re.findall(r"[A-Z]\w+", s.payload["question"])[1:] for s in held_out]
    assert not any([await grade(world, s, " ".join(names)) for s, names in zip(held_out, named, strict=True)])
    # Even told all held-out answers, without searching no single guess is right for more than one in ten.
    commonest = Counter(s.payload["answers"][0] for s in held_out).most_common(1)[0][1]
    assert commonest / len(held_out) < 0.1


async def test_with_search_they_can_be_answered():
    """A scripted policy that follows the path of names, and knows no more than what it finds."""
    world = SyntheticSearch(companies=60)
    for scenario in world.scenarios("validation", 100, 0):
        await world.reset(scenario)
        path = scenario.metadata["path"]
        for thing, following in itertools.pairwise(path):
            arguments = json.dumps({"query_list": [thing]})
            step = await world.step(
                Message("assistant", None, tool_calls=(ToolCall("a", "search", arguments),))
            )
            assert following in step.messages[0].content
        step = await world.step(Message("assistant", f"Answer: {path[-1]}"))
        assert step.reward == pytest.approx(1.0)
        assert step.metrics["answer_found"] == 1.0


@pytest.mark.parametrize("args", [{"hops": [4]}, {"hops": []}, {"companies": 1}, {"corpus": "c.jsonl"}])
def test_arguments_that_do_not_fit_are_refused(args):
    with pytest.raises(ValueError):
        SyntheticSearch(**args)
