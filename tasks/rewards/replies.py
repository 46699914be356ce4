"""What a judge's reply says, taken strictly: what cannot be read with certainty is refused, never guessed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class ReplyError(ValueError):
    """The reply cannot be used; the text says why, in words that a judge can act on."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one trajectory."""

    score: float
    explanation: str


def parse_verdicts(reply: str, labels: Sequence[str]) -> dict[str, Verdict]:
    """Verdicts by label, from a reply as `ruler.py` asks for it.

    The object may stand in a fenced block, or in prose. There must be exactly one verdict for each label,
    with a number from 0 to 1.

    Raises:
        ReplyError: the reply is anything else.
    """
    document = _find_object(reply)
    scores = document.get("scores")
    if not isinstance(scores, list):
        raise ReplyError("the object has no list `scores`")
    verdicts: dict[str, Verdict] = {}
    for entry in scores:
        if not isinstance(entry, dict):
            raise ReplyError(f"an entry of `scores` is {entry!r}, not an object")
        label = entry.get("trajectory")
        if isinstance(label, int) and not isinstance(label, bool):
            label = str(label)
        if not isinstance(label, str) or label not in labels:
            raise ReplyError(f"there is no trajectory {entry.get('trajectory')!r}; there are {_list(labels)}")
        if label in verdicts:
            raise ReplyError(f"trajectory {label} is scored twice")
        explanation = entry.get("explanation", "")
        if not isinstance(explanation, str):
            raise ReplyError(f"the explanation of trajectory {label} is not a text")
        verdicts[label] = Verdict(_score(entry.get("score"), label), explanation)
    if missing := [label for label in labels if label not in verdicts]:
        raise ReplyError(f"no score for trajectory {_list(missing)}")
    return verdicts


def _score(value: Any, label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReplyError(f"the score of trajectory {label} is {value!r}, not a number")
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise ReplyError(f"the score of trajectory {label} is {value}, not from 0 to 1")
    return float(value)


def _find_object(reply: str) -> dict[str, Any]:
    """The one object of the reply that has `scores`: the whole text, a fenced block, or a part of prose."""
    for text in (reply, *FENCE.findall(reply)):
        try:
            document = json.loads(text)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
    found = [document for document in _objects(reply) if "scores" in document]
    if len(found) != 1:
        raise ReplyError("the reply is not one JSON object with `scores`")
    return found[0]


def _objects(reply: str) -> list[dict[str, Any]]:
    """JSON objects that stand in a text, from left to right; those inside another one are not looked at."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while (place := reply.find("{", place)) >= 0:
        try:
            document, place = decoder.raw_decode(reply, place)
        except ValueError:
            place += 1
            continue
        found.append(document)
    return found


def _list(labels: Sequence[str]) -> str:
    return ", ".join(labels)
