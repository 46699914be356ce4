"""Environments whose policy acts by calling tools: the base class, and tasks that are only their tools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from storage.records import Message
from tasks.environments.base import Environment, Step
from tasks.environments.tools import Tool, Toolbox


class ToolEnvironment(Environment):
    """Runs the tool calls of each reply; a reply without a call goes to `answer`.

    Counts `tool_calls` and `tool_errors` in its metrics. A subclass gives its tools to the constructor, or
    adds those of the scenario to `self.toolbox` in `reset`.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        tool_timeout: float = 30.0,
        max_output: int = 4000,
    ) -> None:
        self.toolbox = Toolbox(tools, timeout=tool_timeout, max_output=max_output)

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:  # type: ignore[override]
        return self.toolbox.schemas

    async def step(self, message: Message) -> Step:
        if not message.tool_calls:
            return await self.answer(message)
        messages, failed = await self.toolbox.run(message.tool_calls)
        return Step(messages, metrics={"tool_calls": len(messages), "tool_errors": failed})

    @abstractmethod
    async def answer(self, message: Message) -> Step:
        """Answer a reply that calls no tool."""
