"""Tools that a policy may call: typed Python functions, or whatever an MCP server offers.

A function's type hints become the tool's JSON schema and check the arguments of every call (pydantic does
both); its docstring becomes the description. Describe and bound a parameter by `Annotated[int, Field(...)]`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from storage.records import Message, ToolCall

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # what OpenAI's API and the chat templates accept


class ToolError(Exception):
    """The call failed in a way that the policy should read about and can react to."""


class ToolUnavailable(Exception):
    """The tool's own infrastructure is gone: no fault of the policy, so the episode ends as failed data."""


@dataclass(frozen=True)
class Tool:
    """One tool: what the policy is told of it, and what runs when it is called.

    Attributes:
        parameters: JSON schema of the arguments, an object.
        call: takes the arguments as the policy wrote them and returns what it reads. Raises ToolError for
            arguments that do not fit.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str]]

    @property
    def schema(self) -> dict[str, Any]:
        """As chat templates and OpenAI's API expect it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def function_tool(function: Callable[..., Any]) -> Tool:
    """A tool from a typed function, sync or async. A sync one runs in a thread, which a timeout cannot stop.

    Raises:
        ValueError: a parameter has no type hint or cannot be given by name, or there is no docstring.
    """
    name = function.__name__
    if not (description := inspect.getdoc(function)):
        raise ValueError(f"Tool {name} needs a docstring: it is what the policy reads about it.")
    arguments = _arguments_model(name, function)
    schema = arguments.model_json_schema()
    schema.pop("title", None)

    async def call(given: Mapping[str, Any]) -> str:
        try:
            checked = arguments.model_validate(given)
        except ValidationError as error:
            raise ToolError(f"wrong arguments for {name}: {_explain(error)}") from error
        keywords = {field: getattr(checked, field) for field in arguments.model_fields}
        if inspect.iscoroutinefunction(function):
            return _as_text(await function(**keywords))
        return _as_text(await asyncio.to_thread(function, **keywords))

    return Tool(name, description, schema, call)


class Toolbox:
    """The tools of one episode. Runs the calls of a reply side by side; a failed call becomes a message.

    Args:
        timeout: seconds for one call.
        max_output: characters of a result that the policy reads; the rest is left out, and it is told so.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        timeout: float = 30.0,
        max_output: int = 4000,
    ) -> None:
        if timeout <= 0 or max_output < 1:
            raise ValueError(f"timeout and max_output must be above 0, got {timeout} and {max_output}")
        self._tools: dict[str, Tool] = {}
        self._timeout, self._max_output = timeout, max_output
        self.add(tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        return [tool.schema for tool in self._tools.values()]

    def add(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        """Raises ValueError for a name that is taken or that no API accepts."""
        for given in tools:
            tool = given if isinstance(given, Tool) else function_tool(given)
            if not NAME.fullmatch(tool.name):
                raise ValueError(f"Tool name {tool.name!r} is not 1 to 64 letters, digits, '_', '.' or '-'.")
            if tool.name in self._tools:
                raise ValueError(f"Two tools are named {tool.name!r}: rename one of them.")
            self._tools[tool.name] = tool

    async def run(self, calls: Sequence[ToolCall]) -> tuple[list[Message], int]:
        """Run all calls at once; returns their answers in the order of the calls, and how many failed.

        Raises:
            ToolUnavailable: a tool is gone; the other calls are given up.
        """
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self._answer(call)) for call in calls]
        except* ToolUnavailable as errors:
            raise ToolUnavailable(str(errors.exceptions[0])) from errors
        answers = [task.result() for task in running]
        messages = [
            Message("tool", self._bounded(text), tool_call_id=call.id, name=call.name)
            for call, (text, _) in zip(calls, answers, strict=True)
        ]
        return messages, sum(failed for _, failed in answers)

    async def _answer(self, call: ToolCall) -> tuple[str, bool]:
        """What the policy reads about one call, and whether it failed."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return f"Error: there is no tool {call.name!r}. Tools: {known}.", True
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError as error:
            return f"Error: the arguments for {call.name} are not JSON: {error}.", True
        if not isinstance(arguments, dict):
            return f"Error: the arguments for {call.name} are not an object.", True
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await tool.call(arguments), False
        except ToolUnavailable:
            raise
        except ToolError as error:
            return f"Error: {error}", True
        except Exception as error:  # the user's code
            if limit.expired():
                return f"Error: {call.name} took longer than {self._timeout:g} s and was given up.", True
            return f"Error: {call.name} failed: {type(error).__name__}: {error}", True

    def _bounded(self, text: str) -> str:
        left_out = len(text) - self._max_output
        if left_out <= 0:
            return text
        return f"{text[: self._max_output]}\n[{left_out} more characters left out]"


def _arguments_model(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"Tool {name}: parameter {parameter.name!r} cannot be given by name.")
        if parameter.name not in hints:
            raise ValueError(f"Tool {name}: parameter {parameter.name!r} needs a type hint.")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _explain(error: ValidationError) -> str:
    """One clause for each wrong argument, without pydantic's links."""
    return "; ".join(
        f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors(include_url=False)
    )


def _as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    return "" if result is None else json.dumps(result, ensure_ascii=False, default=str)
