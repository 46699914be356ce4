"""Plays an episode whose replies are given, to see what is stored of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage.records import GroupKey, Message, Scenario, Trajectory
from tasks.environments import Environment, Step
from tasks.episodes.episode import Player, play_episode
from tasks.models.chat import ChatRenderer
from tasks.settings import RolloutSettings
from tests.models.chats import renderer, tokenizer
from tests.scripted import ScriptedSampler
from tests.tiny import make_tokenizer


class _Answers(Environment):
    """Begins with a user's message and answers each reply with the next of `answers`, then with the last."""

    def __init__(self, begin: Message, answers: Sequence[Message], turns: int) -> None:
        self.begin, self.answers, self.turns, self.turn = begin, answers, turns, 0

    async def reset(self, scenario: Scenario) -> list[Message]:
        return [self.begin]

    async def step(self, message: Message) -> Step:
        answer = self.answers[min(self.turn, len(self.answers) - 1)]
        self.turn += 1
        return Step([answer], done=self.turn == self.turns)


async def played(
    family: str,
    replies: Sequence[Sequence[int]],
    answers: Sequence[Message] = (Message("user", "Go on."),),
    *,
    begin: Message = Message("user", "Begin."),  # noqa: B008  (frozen)
    max_model_len: int = 4096,
    chat_template: str | None = None,
    **settings: Any,
) -> Trajectory:
    """The trajectory of an episode in which the policy samples `replies`, closing each that is not cut."""
    left = iter(replies)
    chat = renderer(family) if chat_template is None else ChatRenderer(make_tokenizer(chat_template))
    sampler = ScriptedSampler(tokenizer(family), lambda prompt, seed: [*next(left), chat.stop_token_ids[0]])
    return await play_episode(
        _Answers(begin, answers, len(replies)),
        Scenario("s", {}),
        Player(sampler, chat, max_model_len),
        RolloutSettings(**{"max_tokens_per_turn": 64, **settings}),
        key=GroupKey("r", 1, "train", "s", 0),
        sample_no=0,
        temperature=1.0,
    )
