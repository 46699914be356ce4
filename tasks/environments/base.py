"""The interface between an agent's world and the loop that plays episodes in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import ScenarioError
from storage.records import Message, Scenario, StopReason


@dataclass(frozen=True)
class Step:
    """What the world answers to one reply of the policy.

    Attributes:
        messages: what the policy reads next; may be empty when `done`.
        reward: reward of this turn, if the environment gives rewards; an episode's rewards add up.
        done: the episode is over.
        metrics: numbers about this turn; over an episode, numbers of one name add up.
    """

    messages: Sequence[Message] = ()
    reward: float | None = None
    done: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)


class Environment(ABC):
    """One episode's world. An instance is made for each episode and closed after it.

    `reset` must give the same messages whenever it is given the same scenario: the rollouts of a group are
    compared with each other, so they must begin alike.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    """JSON schemas of the functions that the policy may call, as the chat template expects them."""

    @abstractmethod
    async def reset(self, scenario: Scenario) -> Sequence[Message]:
        """Start the scenario; returns the conversation's first messages."""

    @abstractmethod
    async def step(self, message: Message) -> Step:
        """Answer one reply of the policy, its tool calls included."""

    async def cut(self, reason: StopReason) -> Step:
        """The loop ended the episode at one of its limits, before it was done: what is it worth?

        The reward and the metrics count to the last turn; messages are shown to nobody. Not called where the
        episode failed for a reason that says nothing about the policy.
        """
        return Step()

    async def close(self) -> None:  # noqa: B027  (most environments hold nothing)
        """Give back what the episode held. Called once, however the episode ended."""

    def scenarios(self, split: str, count: int, seed: int) -> Iterable[Scenario]:
        """Make up to `count` scenarios of a split. The two splits must not share any."""
        raise ScenarioError(
            f"{type(self).__name__} makes no scenarios of its own. Set scenarios.source to `file`, or give "
            "the environment a scenarios(split, count, seed) method."
        )
