"""The test kit finds what it is for, passes what is sound, and a person can play."""

import random

import pytest
from typer.testing import CliRunner

from flows.cli import app
from storage.records import Message, Scenario
from tasks.environments import Environment, Step
from tasks.environments.check import Limits, check_environment
from tasks.environments.guess_number import GuessNumber
from tasks.environments.search import SyntheticSearch


class Sound(Environment):
    """Three turns, and then it is over; a subclass has one fault."""

    async def reset(self, scenario):
        self.turn = 0
        return [Message("user", str(scenario.payload))]

    async def step(self, message):
        self.turn += 1
        return Step([Message("user", "Go on.")], reward=0.1, done=self.turn == 3)

    def scenarios(self, split, count, seed):
        return [Scenario(f"{split}-{n}", {"n": [split, n]}) for n in range(count)]


class DrawsInReset(Sound):
    async def reset(self, scenario):
        await super().reset(scenario)
        return [Message("user", str(random.random()))]


class DrawsInStep(Sound):
    async def step(self, message):
        return Step([Message("user", str(random.random()))], done=False)


class SharesState(Sound):
    turns: dict = {}  # noqa: RUF012

    async def reset(self, scenario):
        self.turns["now"] = 0
        return [Message("user", "x")]

    async def step(self, message):
        import asyncio

        self.turns["now"] += 1
        await asyncio.sleep(0)
        return Step([Message("user", f"turn {self.turns['now']}")], done=self.turns["now"] >= 3)


class Raises(Sound):
    async def step(self, message):
        return Step(reward=float(message.content), done=True)


class Floods(Sound):
    async def step(self, message):
        return Step([Message("user", "x" * 50_000)], done=True)


class SameSplits(Sound):
    def scenarios(self, split, count, seed):
        return [Scenario(f"{n}", {"n": n}) for n in range(count)]


class Unstorable(Sound):
    def scenarios(self, split, count, seed):
        return [Scenario(f"{split}-{n}", {"n": object()}) for n in range(count)]


class NotFinite(Sound):
    async def step(self, message):
        return Step(reward=float("nan"), done=True)


FAULTS = {
    DrawsInReset: "must depend on the scenario alone",
    DrawsInStep: "went differently the second time",
    SharesState: "they share state",
    Raises: "step raised ValueError",
    Floods: "50,000 characters",
    SameSplits: "in both splits",
    Unstorable: "must be JSON",
    NotFinite: "must be finite",
}


@pytest.mark.parametrize("environment", FAULTS)
async def test_each_fault_is_found_and_said(environment):
    report = await check_environment(environment, limits=Limits(scenarios=2))
    assert any(FAULTS[environment] in fault for fault in report.faults), report.faults


@pytest.mark.parametrize("environment", [Sound, GuessNumber, lambda: SyntheticSearch(companies=8)])
async def test_what_is_sound_passes(environment):
    assert (await check_environment(environment, limits=Limits(scenarios=2, turns=6))).faults == []


def run(*words, **options):
    return CliRunner().invoke(app, words, **options)


def test_check_env_says_what_it_found_in_its_exit_code():
    sound = run("check-env", "tasks.environments.guess_number:GuessNumber", "--arg", "high=8", "--reply", "3")
    assert sound.exit_code == 0, sound.output
    assert "is sound with 6 policies" in sound.output
    broken = run("check-env", f"{__name__}:Floods")
    assert broken.exit_code == 1
    assert "fault: step gave a message of 50,000 characters" in broken.output


def test_a_person_plays_to_the_end():
    game = run("play", "tasks.environments.guess_number:GuessNumber", "--arg", "guesses=2", input="x\nx\n")
    assert game.exit_code == 0, game.output
    assert "user> Reply with a number." in game.output
    assert "Done. Reward -0.2." in game.output


def test_a_person_calls_tools_and_may_leave():
    name = "tasks.environments.search:SyntheticSearch"
    game = run("play", name, "--arg", "companies=8", input='/search {"query_list": ["person"]}\n')
    assert game.exit_code == 0, game.output
    assert "tool /search" in game.output
    assert "Results for 'person'" in game.output
    assert "You left the episode." in game.output
