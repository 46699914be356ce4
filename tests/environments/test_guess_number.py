"""The guessing game: its hints, its rewards, and splits that share no secret."""

import pytest

from storage.errors import ScenarioError
from storage.records import Message, Scenario
from tasks.environments.guess_number import GuessNumber


async def play(replies: list[str], secret: int = 7) -> tuple[list[str], list[float | None], bool]:
    game = GuessNumber(high=16, guesses=4)
    await game.reset(Scenario("s", {"secret": secret}))
    steps = [await game.step(Message("assistant", reply)) for reply in replies]
    said = [m.content for step in steps for m in step.messages]
    return said, [step.reward for step in steps], steps[-1].done


async def test_hints_lead_to_the_secret():
    said, rewards, done = await play(["3", "my guess: 9", "7"])
    assert said == ["Too low. Guess again.", "Too high. Guess again."]
    assert rewards == [0.0, 0.0, pytest.approx(0.7)]
    assert done


async def test_a_reply_without_a_number_costs_and_uses_up_a_guess():
    _, rewards, done = await play(["hm", "", "1", "2"])
    assert rewards == [-0.1, -0.1, 0.0, 0.0]
    assert done


async def test_reset_depends_on_the_scenario_alone():
    game = GuessNumber()
    scenario = Scenario("s", {"secret": 3})
    assert await game.reset(scenario) == await GuessNumber().reset(scenario)


def test_splits_share_no_secret():
    game = GuessNumber(high=16)
    secrets = {
        split: {s.payload["secret"] for s in game.scenarios(split, count, seed=5)}
        for split, count in (("train", 12), ("validation", 4))
    }
    assert secrets["train"] | secrets["validation"] == set(range(1, 17))
    assert not secrets["train"] & secrets["validation"]


def test_more_scenarios_than_secrets_are_refused():
    with pytest.raises(ScenarioError, match="has 12 train scenarios"):
        GuessNumber(high=16).scenarios("train", 13, seed=0)
