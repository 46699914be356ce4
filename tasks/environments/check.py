"""Plays an environment with policies that know nothing, to find what would spoil a training run.

Checked: the splits share no scenario, scenarios are functions of the seed, the environment's arguments and
scenarios can be pickled and stored, `reset` depends on the scenario alone, the same replies give the same
episode, an episode that was played beside others is the episode played alone, whatever is replied ends
within bounds, and nothing that is said outgrows a context.
"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.codec import to_json
from storage.errors import RollmillError
from storage.records import Message, Scenario, StopReason, ToolCall
from tasks.environments.base import Environment, Step

WORDS = ["yes", "no", "7", "3", "0", "-1", "up", "left", "[1]", "the", "Answer:", "{}", "\x00", "Ω"]
LONGEST_MESSAGE = 20_000  # characters; about 5,000 tokens
ROLES = frozenset({"system", "user", "assistant", "tool"})

Policy = Callable[[Environment, int], Message]
MakeEnvironment = Callable[[], Environment]


@dataclass(frozen=True)
class Limits:
    scenarios: int = 4
    turns: int = 20
    seconds: float = 30.0  # for one call of reset, step or close


@dataclass
class Report:
    """What was found; each fault says what to do."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)


def random_policy(seed: int) -> Policy:
    """Says words at random, and calls the tools with arguments that fit their schemas, or do not."""

    def reply(environment: Environment, turn: int) -> Message:
        draw = random.Random(f"{seed}/{turn}")
        tools = list(environment.tools)
        if tools and draw.random() < 0.6:
            calls = [
                _random_call(draw, draw.choice(tools), f"c{turn}{n}") for n in range(draw.choice((1, 1, 2)))
            ]
            return Message("assistant", None, tool_calls=tuple(calls))
        return Message("assistant", " ".join(draw.choices(WORDS, k=draw.randint(1, 8))))

    return reply


def scripted_policy(replies: Sequence[str]) -> Policy:
    """Says `replies` in turn, and then the last of them."""
    return lambda environment, turn: Message("assistant", replies[min(turn, len(replies) - 1)])


POLICIES: dict[str, Policy] = {
    "random words and calls": random_policy(0),
    "other random words and calls": random_policy(1),
    "empty replies": scripted_policy([""]),
    "very long replies": scripted_policy(["word " * 5000]),
    "an unknown tool": lambda environment, turn: Message(
        "assistant", None, tool_calls=(ToolCall("x", "no_such_tool", "{}"),)
    ),
}


async def check_environment(
    make: MakeEnvironment, policies: dict[str, Policy] | None = None, limits: Limits | None = None
) -> Report:
    """Play the environment's own scenarios with every policy, twice alone and once side by side."""
    report, limits = Report(), limits or Limits()
    scenarios = _check_scenarios(make, limits, report)
    for name, policy in (POLICIES if policies is None else policies).items():
        alone = [await _play(make, scenario, policy, limits, report, name) for scenario in scenarios]
        again = [await _play(make, scenario, policy, limits, report, name) for scenario in scenarios]
        together = await asyncio.gather(
            *(_play(make, scenario, policy, limits, report, name) for scenario in scenarios)
        )
        for scenario, first, second, beside in zip(scenarios, alone, again, together, strict=True):
            where = f"scenario {scenario.scenario_id!r} with {name}"
            if first[:1] != second[:1]:
                report.fault(
                    f"reset gave {where} other messages the second time: it must depend on the "
                    "scenario alone, so put what it draws into the payload."
                )
            elif first != second:
                report.fault(
                    f"{where} went differently the second time with the same replies. Draw from "
                    "random.Random seeded by the scenario, not from a global generator or the clock."
                )
            elif first != beside:
                report.fault(
                    f"{where} went differently beside other episodes: they share state. Keep an episode's "
                    "state in the instance, and set it in reset."
                )
    return report


def _check_scenarios(make: MakeEnvironment, limits: Limits, report: Report) -> list[Scenario]:
    found: dict[str, list[Scenario]] = {}
    for split in ("train", "validation"):
        for count in (limits.scenarios, 1):
            try:
                found[split] = list(make().scenarios(split, count, 0))
                again = list(make().scenarios(split, count, 0))
            except RollmillError as error:
                message = str(error)
                continue
            if found[split] != again:
                report.fault(
                    f"scenarios({split!r}, {count}, 0) made others the second time: draw by the seed."
                )
            break
        else:
            report.fault(f"The environment made no {split} scenarios: {message}")
            found[split] = []
    shared = {s.scenario_id for s in found["train"]} & {s.scenario_id for s in found["validation"]}
    payloads = {_stored(s) for s in found["train"]} & {_stored(s) for s in found["validation"]} - {None}
    if shared or payloads:
        report.fault(
            f"{len(shared) or len(payloads)} scenarios are in both splits: validation would measure what "
            "was trained on."
        )
    scenarios = [*found["train"], *found["validation"]]
    for scenario in scenarios:
        if _stored(scenario) is None:
            report.fault(
                f"Scenario {scenario.scenario_id!r} cannot be stored: its payload and metadata must be JSON."
            )
        _check_pickle(scenario, f"Scenario {scenario.scenario_id!r}", report)
    report.notes.append(f"{len(scenarios)} scenarios of two splits")
    return scenarios


def _check_pickle(thing: Any, what: str, report: Report) -> None:
    try:
        pickle.loads(pickle.dumps(thing))
    except Exception as error:  # a __reduce__ of the user's
        report.fault(f"{what} cannot be pickled, so no other process could play it: {error}")


def _stored(scenario: Scenario) -> str | None:
    try:
        return to_json(scenario.payload)
    except (TypeError, ValueError):
        return None


async def _play(
    make: MakeEnvironment, scenario: Scenario, policy: Policy, limits: Limits, report: Report, name: str
) -> list[Any]:
    """What an episode showed: the first messages, then each step. Faults go to the report."""
    seen: list[Any] = []
    environment = make()

    async def ask(method: str, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(limits.seconds):
                return await work
        except TimeoutError:
            report.fault(f"{method} took longer than {limits.seconds:g} s with {name}.")
        except Exception as error:  # the user's code
            report.fault(
                f"{method} raised {type(error).__name__}: {error}, with {name}. That would end "
                "the episode as environment_error: answer what the policy did wrong with a message."
            )
        return None

    try:
        first = await ask("reset", environment.reset(scenario))
        if first is None:
            return seen
        _check_messages(first, "reset", report)
        seen.append((list(first), json.dumps(list(environment.tools), sort_keys=True, default=str)))
        for turn in range(limits.turns):
            step = await ask("step", environment.step(policy(environment, turn)))
            if step is None:
                return seen
            _check_step(step, report)
            seen.append((list(step.messages), step.reward, step.done, dict(step.metrics)))
            if step.done:
                return seen
        last = await ask("cut", environment.cut(StopReason.MAX_TURNS))
        if last is not None:
            seen.append((last.reward, dict(last.metrics)))
            if last.reward is None and not any(turn[1] is not None for turn in seen[1:-1]):
                note = "An episode that a limit ends is unscored: give it a reward in cut(), or in its steps."
                if note not in report.notes:
                    report.notes.append(note)
        return seen
    finally:
        await ask("close", environment.close())


def _check_step(step: Any, report: Report) -> None:
    if not isinstance(step, Step):
        report.fault(f"step returned {type(step).__name__}, not a Step.")
        return
    _check_messages(step.messages, "step", report)
    if not step.done and not step.messages:
        report.fault("step gave neither a message nor done: the policy would read nothing new.")
    for what, number in (("reward", step.reward), *step.metrics.items()):
        if number is not None and not math.isfinite(number):
            report.fault(f"step gave {what} = {number}: numbers must be finite.")


def _check_messages(messages: Sequence[Message], method: str, report: Report) -> None:
    for message in messages:
        if message.role not in ROLES:
            report.fault(
                f"{method} gave a message of role {message.role!r}; roles are {', '.join(sorted(ROLES))}."
            )
        if len(message.content or "") > LONGEST_MESSAGE:
            report.fault(
                f"{method} gave a message of {len(message.content or ''):,} characters: bound it, at "
                f"{LONGEST_MESSAGE:,} or less, or it fills the context."
            )


def _random_call(draw: random.Random, tool: Any, call_id: str) -> ToolCall:
    function = tool["function"]
    properties = function.get("parameters", {}).get("properties", {})
    arguments = {name: _random_value(draw, schema) for name, schema in properties.items()}
    if draw.random() < 0.3:
        arguments["no_such_argument"] = 1
    return ToolCall(call_id, function["name"], json.dumps(arguments))


def _random_value(draw: random.Random, schema: Any) -> Any:
    if "enum" in schema:
        return draw.choice(schema["enum"])
    values = {
        "string": lambda: " ".join(draw.choices(WORDS, k=3)),
        "integer": lambda: draw.randint(-5, 50),
        "number": lambda: draw.uniform(-5, 50),
        "boolean": lambda: draw.random() < 0.5,
        "array": lambda: [_random_value(draw, schema.get("items", {}))],
        "object": dict,
    }
    return values.get(schema.get("type"), lambda: None)()
