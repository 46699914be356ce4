"""Shipped rewards for the answer that an episode ends with: a text, a number, a pattern, a JSON document.

Each takes the last reply of the policy and gives 1.0 or 0.0, and says in its explanation what it read. An
episode without such a reply is wrong, which is 0.0; a scenario without the expected answer is a mistake of
the scenarios, so that the score is null with the missing field's name. A last reply that was cut at its token
limit is marked by the component `cut`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from storage.records import Scenario, Trajectory
from tasks.environments.search import grading
from tasks.rewards.programmatic import Reward

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|(?<!\w)[-+]?\.\d+")
FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def exact_match(
    trajectory: Trajectory,
    scenario: Scenario,
    answer_field: str = "answer",
    pattern: str | None = None,
    normalise: Literal["none", "blanks", "squad"] = "blanks",
) -> Reward:
    """Whether the answer is the one in the scenario's payload, or one of several there.

    Args:
        pattern: where the answer stands in the reply: the first group of the last match; None takes it whole.
        normalise: how both are made alike. `blanks`: runs of blanks are one, none at the ends; `squad`: case,
            punctuation, articles and blanks, as SQuAD's evaluation has it.
    """
    said = _extracted(trajectory, pattern)
    if said is None:
        return _verdict(trajectory, False, "the last reply holds no answer")
    expected = scenario.payload[answer_field]
    accepted = expected if isinstance(expected, list) else [expected]
    right = _alike(said, normalise) in [_alike(str(one), normalise) for one in accepted]
    return _verdict(trajectory, right, f"answered {said!r}")


def numeric(
    trajectory: Trajectory,
    scenario: Scenario,
    answer_field: str = "answer",
    pattern: str | None = None,
    relative_tolerance: float = 1e-6,
    absolute_tolerance: float = 0.0,
) -> Reward:
    """Whether the last number in the answer is the scenario's, with thousands separators or without.

    Raises:
        ValueError: the scenario's own answer is no number.
    """
    [expected] = numbers(str(scenario.payload[answer_field])) or [math.nan]
    if not math.isfinite(expected):
        raise ValueError(f"the scenario's {answer_field} {scenario.payload[answer_field]!r} is no number")
    found = numbers(_extracted(trajectory, pattern) or "")
    if not found:
        return _verdict(trajectory, False, "the last reply holds no number")
    right = math.isclose(found[-1], expected, rel_tol=relative_tolerance, abs_tol=absolute_tolerance)
    return _verdict(trajectory, right, f"answered {found[-1]:g}")


def regex(
    trajectory: Trajectory, scenario: Scenario, pattern: str, where: Literal["within", "whole"] = "within"
) -> Reward:
    """Whether the last reply matches `pattern` somewhere within it, or as a whole; a dot matches newlines."""
    said = last_reply(trajectory)
    match = re.search if where == "within" else re.fullmatch
    right = said is not None and match(pattern, said, re.DOTALL) is not None
    return _verdict(trajectory, right, f"the last reply {'matches' if right else 'does not match'}")


def json_schema(trajectory: Trajectory, scenario: Scenario, schema: Mapping[str, Any]) -> Reward:
    """Whether the last reply is JSON, bare or in one fenced block, that is valid against `schema`.

    Raises:
        jsonschema.SchemaError: the schema itself is wrong.
    """
    import jsonschema

    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    said = last_reply(trajectory) or ""
    blocks = FENCED.findall(said)
    try:
        document = json.loads(blocks[0] if len(blocks) == 1 else said, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return _verdict(trajectory, False, f"the last reply is not JSON: {error}")
    mistake = jsonschema.exceptions.best_match(validator(schema).iter_errors(document))
    why = "valid" if mistake is None else f"{mistake.json_path}: {mistake.message}"
    return _verdict(trajectory, mistake is None, why)


def last_reply(trajectory: Trajectory) -> str | None:
    """Text of the policy's last reply that has any; None where it said nothing."""
    replies = (m.content for m in reversed(trajectory.messages) if m.role == "assistant" and m.content)
    return next(replies, None)


def numbers(text: str) -> list[float]:
    """The numbers in a text, in order. A minus belongs to a number where no word or digit precedes it."""
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def _extracted(trajectory: Trajectory, pattern: str | None) -> str | None:
    """The answer in the last reply: the first group of the last match of `pattern`, or the whole of it."""
    said = last_reply(trajectory)
    if said is None or pattern is None:
        return said
    matches = list(re.finditer(pattern, said, re.DOTALL))
    return matches[-1][1] if matches else None


def _alike(text: str, normalise: str) -> str:
    if normalise == "squad":
        return grading.normalise(text)
    return " ".join(text.split()) if normalise == "blanks" else text


def _verdict(trajectory: Trajectory, right: bool, explanation: str) -> Reward:
    cut = bool(trajectory.turns) and trajectory.turns[-1].finish_reason == "length"
    return Reward(1.0 if right else 0.0, {"cut": float(cut)}, explanation)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
