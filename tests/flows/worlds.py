"""Environments for runs of a tiny model, named in their configs."""

from __future__ import annotations

import asyncio

from storage.records import Scenario
from tasks.environments import Step
from tasks.environments.guess_number import GuessNumber


class LengthGuess(GuessNumber):
    """Rewards the length of what is said, which does vary: a random tiny model says no numbers."""

    async def step(self, message):
        answer = await super().step(message)
        return Step(answer.messages, reward=len(message.content or "") / 10, done=answer.done)


class SlowGuess(LengthGuess):
    """The same with an answer that takes its time, so that a run can be caught in the middle."""

    async def step(self, message):
        await asyncio.sleep(0.3 * int(self._secret % 4))
        return await super().step(message)


class Unreplayable(GuessNumber):
    """Begins differently each time, though the scenario is the same."""

    started = 0

    async def reset(self, scenario: Scenario):
        messages = await super().reset(scenario)
        Unreplayable.started += 1
        return [*messages[:-1], type(messages[-1])("user", f"Game {Unreplayable.started}.")]
