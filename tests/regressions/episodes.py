"""Plays an episode whose replies are given, to see what is stored of it."""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import GroupKey, Message, Scenario, Trajectory
from tasks.environments import Environment, Step
from tasks.episodes.episode import Player, play_episode
from tasks.settings import RolloutSettings
from tests.models.chats import renderer, tokenizer
from tests.scripted import ScriptedSampler


class _Answers(Environment):
    """Begins with a user's message and answers each reply with the next of `answers`, then with the last."""

    def __init__(self, answers: Sequence[Message], turns: int) -> None:
        self.answers, self.turns, self.turn = answers, turns, 0

    async def reset(self, scenario: Scenario) -> list[Message]:
        return [Message("user", "Begin.")]

    async def step(self, message: Message) -> Step:
        answer = self.answers[min(self.turn, len(self.answers) - 1)]
        self.turn += 1
        return Step([answer], done=self.turn == self.turns)


async def played(
    family: str,
    replies: Sequence[Sequence[int]],
    answers: Sequence[Message] = (Message("user", "Go on."),),
    *,
    max_tokens_per_turn: int = 64,
) -> Trajectory:
    """The trajectory of an episode in which the policy samples `replies`, closing each that is not cut."""
    left = iter(replies)
    chat = renderer(family)
    sampler = ScriptedSampler(tokenizer(family), lambda prompt, seed: [*next(left), chat.stop_token_ids[0]])
    return await play_episode(
        _Answers(answers, len(replies)),
        Scenario("s", {}),
        Player(sampler, chat, 4096),
        RolloutSettings(max_tokens_per_turn=max_tokens_per_turn),
        key=GroupKey("r", 1, "train", "s", 0),
        sample_no=0,
        temperature=1.0,
    )
