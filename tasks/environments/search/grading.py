"""Grades of short answers: SQuAD's normalised exact match and F1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

ANSWER = re.compile(r"^\s*\**answer\**\s*:\**(.*)$", re.IGNORECASE | re.MULTILINE)
PUNCTUATION = str.maketrans("", "", string.punctuation)


def stated_answer(reply: str) -> str | None:
    """What follows the last `Answer:` that begins a line; None where there is none, or nothing follows it."""
    found = ANSWER.findall(reply)
    return found[-1].strip() or None if found else None


def normalise(answer: str) -> str:
    """Lower case, no punctuation, no articles, single blanks. Rajpurkar et al., SQuAD (2016), 6.1."""
    bare = answer.lower().translate(PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    return float(normalise(answer) in {normalise(right) for right in accepted})


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Largest F1 of the words in common with one of the accepted answers."""
    return max((_f1(normalise(answer).split(), normalise(right).split()) for right in accepted), default=0.0)


def _f1(given: list[str], right: list[str]) -> float:
    common = sum((Counter(given) & Counter(right)).values())
    if not given or not right:
        return float(given == right)
    return 2 * common / (len(given) + len(right))
