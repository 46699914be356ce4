"""T5 (TRL 4890): a tool call without arguments, not JSON, of an unknown tool, or two in one turn.

Such a call raised out of the rollout, or only the first of several ran. Here the policy reads what was wrong,
every call that can be read runs, and all are counted.
"""

import pytest

from storage.records import GroupKey, Message, Scenario, StopReason
from tasks.environments import Step, ToolEnvironment
from tasks.episodes.episode import Player, play_episode
from tasks.settings import RolloutSettings
from tests.models.chats import renderer, tokenizer
from tests.scripted import ScriptedSampler


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Adding(ToolEnvironment):
    def __init__(self):
        super().__init__([add])

    async def reset(self, scenario):
        return [Message("user", "Add.")]

    async def answer(self, message):
        return Step(reward=1.0, done=True)


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


GOOD = '{"name": "add", "arguments": {"a": 1}}'
CASES = {
    "no arguments": (
        "qwen3",
        hermes('{"name": "add"}'),
        ["Error: wrong arguments for add: a: Field required"],
    ),
    "not JSON": ("qwen3", hermes('{"name": "add", '), ["Error: the tool call is not JSON"]),
    "unknown tool": (
        "qwen3",
        hermes('{"name": "sub", "arguments": {}}'),
        ["Error: there is no tool 'sub'. Tools: add."],
    ),
    "wrong type": (
        "qwen3",
        hermes('{"name": "add", "arguments": {"a": [1]}}'),
        ["Error: wrong arguments for add: a: Input should be a valid integer"],
    ),
    "unknown argument": (
        "qwen3",
        hermes('{"name": "add", "arguments": {"a": 1, "c": 2}}'),
        ["Error: wrong arguments for add: c: Extra inputs are not permitted"],
    ),
    "arguments are no object": (
        "qwen3",
        hermes('{"name": "add", "arguments": [1]}'),
        ["Error: the tool call cannot be read: the arguments for add are not an object"],
    ),
    "two calls": (
        "qwen3",
        hermes(GOOD) + "\n" + hermes('{"name": "add", "arguments": {"a": 1, "b": 5}}'),
        ["2", "6"],
    ),
    "one good, one bad": (
        "qwen3",
        hermes(GOOD) + "\n" + hermes("{oops"),
        ["2", "Error: the tool call is not"],
    ),
    "good, llama": ("llama3", '{"name": "add", "parameters": {"a": 1}}', ["2"]),
    "unknown tool, llama": (
        "llama3",
        '{"name": "sub", "parameters": {}}',
        ["Error: there is no tool 'sub'. Tools: add."],
    ),
    "cut JSON, llama": ("llama3", '{"name": "add", "parameters": {"a"', ["Error: the tool call is not JSON"]),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_policy_reads_what_was_wrong_and_every_call_runs(case):
    family, reply, expected = CASES[case]
    replies = iter([reply, "done"])
    trajectory = await play_episode(
        Adding(),
        Scenario("s", {}),
        Player(
            ScriptedSampler(tokenizer(family), lambda prompt, seed: next(replies)), renderer(family), 4096
        ),
        RolloutSettings(),
        key=GroupKey("r", 1, "train", "s", 0),
        sample_no=0,
        temperature=1.0,
    )
    assert trajectory.stop_reason is StopReason.COMPLETED
    said = [message.content for message in trajectory.messages if message.role == "tool"]
    assert len(said) == len(expected)
    assert all(text.startswith(start) for text, start in zip(said, expected, strict=True))
    metrics = trajectory.metrics
    assert metrics.get("tool_calls", 0) + metrics.get("parse_errors", 0) == len(expected)
    wrong = sum(text.startswith("Error") for text in said)
    assert metrics.get("tool_errors", 0) + metrics.get("parse_errors", 0) == wrong
