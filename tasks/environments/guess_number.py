"""Guess a secret number from hints: the smallest task that takes several turns.

A right guess ends the episode with 1 - 0.1 x (number of turns used); a reply without any number costs 0.1.
The secrets of the two splits are disjoint, so validation asks for numbers that never trained.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from storage.errors import ScenarioError
from storage.records import Message, Scenario
from tasks.environments.base import Environment, Step


class GuessNumber(Environment):
    def __init__(self, high: int = 16, guesses: int = 4) -> None:
        if high < 4 or guesses < 1:
            raise ValueError(f"high must be 4 or more and guesses 1 or more, got {high} and {guesses}")
        self.high, self.guesses = high, guesses

    async def reset(self, scenario: Scenario) -> Sequence[Message]:
        self._secret = int(scenario.payload["secret"])
        self._turn = 0
        return [
            Message("system", "You play a guessing game. Reply with one number and nothing else."),
            Message("user", f"I think of a number from 1 to {self.high}. What is your guess?"),
        ]

    async def step(self, message: Message) -> Step:
        self._turn += 1
        found = re.search(r"\d+", message.content or "")
        last = self._turn >= self.guesses
        if found is None:
            return Step((_say("Reply with a number."),), reward=-0.1, done=last, metrics={"no_number": 1.0})
        guess = int(found.group())
        if guess == self._secret:
            return Step(reward=1.0 - 0.1 * self._turn, done=True, metrics={"solved": 1.0})
        hint = "Too low." if guess < self._secret else "Too high."
        return Step((_say(f"{hint} Guess again."),), reward=0.0, done=last)

    def scenarios(self, split: str, count: int, seed: int) -> Sequence[Scenario]:
        secrets = list(range(1, self.high + 1))
        random.Random(f"guess_number/{seed}").shuffle(secrets)
        held_out = max(1, self.high // 4)
        chosen = secrets[:held_out] if split == "validation" else secrets[held_out:]
        if count > len(chosen):
            raise ScenarioError(
                f"GuessNumber(high={self.high}) has {len(chosen)} {split} scenarios, one for each secret of "
                f"the split, and {count} were asked for. Lower scenarios.{split}, or raise high."
            )
        return [Scenario(f"secret-{secret}", {"secret": secret}) for secret in chosen[:count]]


def _say(text: str) -> Message:
    return Message("user", text)
