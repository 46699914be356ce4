"""Functions as tools: schemas from type hints, checked arguments, parallel calls, failures as messages."""

import asyncio
import json
import time
from typing import Annotated, Literal

import pytest
from pydantic import Field

from storage.records import Message, ToolCall
from tasks.environments import Step, ToolEnvironment, ToolUnavailable
from tasks.environments.tools import Toolbox, function_tool


def add(a: int, b: Annotated[int, Field(description="the second")] = 2, mode: Literal["x", "y"] = "x") -> int:
    """Add two numbers."""
    return a + b


async def wait(seconds: float) -> str:
    """Wait for a while."""
    await asyncio.sleep(seconds)
    return f"waited {seconds}"


def call(name: str, **arguments) -> ToolCall:
    return ToolCall("c1", name, json.dumps(arguments))


async def answer(toolbox: Toolbox, *calls: ToolCall) -> list[str]:
    messages, _ = await toolbox.run(calls)
    return [message.content for message in messages]


def test_type_hints_and_docstring_become_the_schema():
    schema = function_tool(add).schema["function"]
    assert (schema["name"], schema["description"]) == ("add", "Add two numbers.")
    parameters = schema["parameters"]
    assert parameters["required"] == ["a"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["b"] == {
        "default": 2, "description": "the second", "title": "B", "type": "integer",
    }  # fmt: skip
    assert parameters["properties"]["mode"]["enum"] == ["x", "y"]


def _no_hint(a):
    """Doc."""


def _any_number(*numbers: int):
    """Doc."""


def _no_docstring(a: int): ...


@pytest.mark.parametrize(
    ("function", "wrong"),
    [(_no_hint, "needs a type hint"), (_any_number, "by name"), (_no_docstring, "docstring")],
)
def test_a_function_that_cannot_be_described_is_refused(function, wrong):
    with pytest.raises(ValueError, match=wrong):
        function_tool(function)


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="Two tools are named 'add'"):
        Toolbox([add, add])


async def test_calls_of_one_reply_run_side_by_side_and_answer_in_order():
    started = time.monotonic()
    messages, failed = await Toolbox([wait]).run(
        [ToolCall("first", "wait", '{"seconds": 0.3}'), ToolCall("second", "wait", '{"seconds": 0.2}')]
    )
    assert time.monotonic() - started < 0.45
    assert [(m.tool_call_id, m.content) for m in messages] == [
        ("first", "waited 0.3"),
        ("second", "waited 0.2"),
    ]
    assert failed == 0


async def test_a_call_that_takes_too_long_is_given_up_and_leaves_the_others():
    said = await answer(Toolbox([wait, add], timeout=0.1), call("wait", seconds=5), call("add", a=1))
    assert said == ["Error: wait took longer than 0.1 s and was given up.", "3"]


async def test_what_a_tool_raises_is_told_to_the_policy():
    def broken(path: str) -> str:
        """Read."""
        raise FileNotFoundError(path)

    assert await answer(Toolbox([broken]), call("broken", path="a.txt")) == [
        "Error: broken failed: FileNotFoundError: a.txt"
    ]


async def test_a_tools_own_timeout_is_not_taken_for_the_limit():
    async def impatient() -> str:
        """Give up."""
        raise TimeoutError("upstream")

    assert await answer(Toolbox([impatient]), call("impatient")) == [
        "Error: impatient failed: TimeoutError: upstream"
    ]


async def test_a_long_result_is_cut_and_says_so():
    def shout() -> str:
        """Shout."""
        return "a" * 100

    assert await answer(Toolbox([shout], max_output=10), call("shout")) == [
        "a" * 10 + "\n[90 more characters left out]"
    ]


async def test_infrastructure_that_is_gone_is_no_message_to_the_policy():
    async def gone() -> str:
        """Ask the server."""
        raise ToolUnavailable("server down")

    with pytest.raises(ToolUnavailable, match="server down"):
        await Toolbox([gone, wait]).run([call("wait", seconds=5), call("gone")])


async def test_a_tool_environment_counts_calls_and_answers_the_rest():
    class Sums(ToolEnvironment):
        async def reset(self, scenario):
            return [Message("user", "1 + 2?")]

        async def answer(self, message):
            return Step(reward=float(message.content == "3"), done=True)

    world = Sums([add])
    assert world.tools[0]["function"]["name"] == "add"
    step = await world.step(Message("assistant", None, tool_calls=(call("add", a=1), call("nothing"))))
    assert step.metrics == {"tool_calls": 2, "tool_errors": 1}
    assert not step.done
    assert (await world.step(Message("assistant", "3"))).reward == 1.0
