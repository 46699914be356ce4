"""A made-up world with a corpus about it, and questions whose facts stand in different documents.

Every name is invented and belongs to one split for good, whatever the seed: what was learnt about the
training world answers nothing in the other. Each split is searched by itself, so that training never reads a
name of the held-out world. One document describes one thing, and none holds both what a question of several
hops names and what it asks for.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import ScenarioError
from storage.records import Scenario
from tasks.environments.search.documents import Document, Retriever
from tasks.environments.search.environment import Search
from tasks.environments.search.retrievers import shared_retriever

ONSETS = [*"bdfghjklmnprstvwz", "br", "dr", "gr", "kl", "pr", "st", "tr"]
VOWELS = [*"aeiou", "ai", "ea", "io", "ou"]
CODAS = ["", "", "", "l", "n", "r", "s", "th", "x"]
SUFFIXES = {"person": ["", "son", "wick"], "city": ["ville", "burg", "holm"], "company": [" Works", " Group"]}

# Kind of thing: its facts, each a relation to another kind with the sentences that may state it.
FACTS: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]] = {
    "company": {
        "founder": ("person", ["{a} was founded by {b}.", "The founder of {a} is {b}."]),
        "seat": ("city", ["{a} has its headquarters in {b}.", "The headquarters of {a} are in {b}."]),
    },
    "person": {
        "birthplace": ("city", ["{a} was born in {b}.", "The birthplace of {a} is {b}."]),
        "teacher": ("person", ["{a} was taught by {b}.", "The teacher of {a} was {b}."]),
    },
    "city": {
        "river": ("river", ["The river {b} flows through {a}.", "{a} lies on the river {b}."]),
        "country": ("country", ["{a} is a city in {b}.", "{a} belongs to the country of {b}."]),
    },
    "river": {},
    "country": {},
}
QUESTIONS: Mapping[tuple[str, ...], str] = {
    ("company", "founder"): "Who founded {a}?",
    ("company", "seat"): "In which city does {a} have its headquarters?",
    ("person", "birthplace"): "In which city was {a} born?",
    ("person", "teacher"): "Who taught {a}?",
    ("company", "founder", "birthplace"): "In which city was the founder of {a} born?",
    ("company", "founder", "teacher"): "Who taught the founder of {a}?",
    ("company", "seat", "river"): "Which river flows through the city where {a} has its headquarters?",
    ("person", "teacher", "birthplace"): "In which city was the teacher of {a} born?",
    ("person", "birthplace", "country"): "In which country was {a} born?",
    (
        "company",
        "founder",
        "birthplace",
        "river",
    ): "Which river flows through the birthplace of {a}'s founder?",
    ("company", "founder", "birthplace", "country"): "In which country was the founder of {a} born?",
}


@dataclass(frozen=True)
class World:
    """`facts[thing][relation]` is the thing it leads to."""

    names: Mapping[str, Sequence[str]]  # by kind
    facts: Mapping[str, Mapping[str, str]]
    documents: Sequence[Document]


def make_world(split: str, seed: int, companies: int) -> World:
    """A world of `companies`, twice as many people, and half as many of the rest."""
    draw = random.Random(f"synthetic world/{split}/{seed}/{companies}")
    small = max(4, companies // 2)
    counts = {"company": companies, "person": 2 * companies, "city": small, "river": small, "country": small}
    taken: set[str] = set()
    names = {kind: [_name(kind, split, draw, taken) for _ in range(count)] for kind, count in counts.items()}
    facts: dict[str, dict[str, str]] = {}
    documents: list[Document] = []
    for kind, relations in FACTS.items():
        for thing in names[kind]:
            facts[thing] = {}
            sentences = [f"{thing} is a {kind}."]
            for relation, (target, wordings) in relations.items():
                others = [name for name in names[target] if name != thing]
                facts[thing][relation] = other = draw.choice(others)
                sentences.append(draw.choice(wordings).format(a=thing, b=other))
            documents.append(Document(f"{split}-{len(documents)}", thing, " ".join(sentences)))
    draw.shuffle(documents)
    return World(names, facts, documents)


def make_questions(world: World, hops: Sequence[int]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Every question of these numbers of hops: its text, its answer, and the things that lead to it."""
    beside: dict[str, set[str]] = {}  # what stands in one document with a thing
    for thing, relations in world.facts.items():
        for name in (thing, *relations.values()):
            beside.setdefault(name, set()).update({thing, *relations.values()})
    made = []
    for (kind, *hop_names), wording in QUESTIONS.items():
        if len(hop_names) not in hops:
            continue
        for thing in world.names[kind]:
            path = [thing]
            for relation in hop_names:
                path.append(world.facts[path[-1]][relation])
            back = len(set(path)) < len(path)  # to where it came from
            if not back and (len(path) == 2 or path[-1] not in beside[path[0]]):
                made.append((wording.format(a=thing), path[-1], tuple(path)))
    return made


class SyntheticSearch(Search):
    """Questions over invented worlds, one for each split.

    Args:
        companies: size of a world; it has about five documents for each company.
        hops: how many facts a question may need, from 1 to 3.
        **search: what `Search` takes, apart from `corpus` and `questions`.
    """

    def __init__(self, companies: int = 200, hops: Sequence[int] = (2, 3), **search: Any) -> None:
        if companies < 4 or not hops or not set(hops) <= {1, 2, 3}:
            raise ValueError(f"companies must be 4 or more and hops of 1, 2, 3; got {companies} and {hops}")
        if given := search.keys() & {"corpus", "questions"}:
            raise ValueError(f"{', '.join(sorted(given))} would do nothing here: the world is made up")
        super().__init__(**search)
        if self.retriever_settings.kind == "http":
            raise ValueError("an http retriever cannot search this made-up world: choose bm25 or dense")
        self.companies, self.hops = companies, tuple(hops)

    def retriever(self, scenario: Scenario) -> Retriever:
        split, seed = scenario.payload["world"]
        key = ("synthetic world", split, seed, self.companies)
        return shared_retriever(
            self.retriever_settings, key, lambda: make_world(split, seed, self.companies).documents
        )

    def scenarios(self, split: str, count: int, seed: int) -> Sequence[Scenario]:
        questions = make_questions(make_world(split, seed, self.companies), self.hops)
        if count > len(questions):
            raise ScenarioError(
                f"A world of {self.companies} companies has {len(questions)} questions of {list(self.hops)} "
                f"hops, and {count} were asked for. Lower scenarios.{split}, or raise companies."
            )
        chosen = random.Random(f"synthetic questions/{split}/{seed}").sample(questions, count)
        return [
            Scenario(
                f"{split}-{seed}-{zlib.crc32(question.encode()):08x}",
                {"question": question, "answers": [answer], "world": [split, seed]},
                {"hops": len(path) - 1, "path": list(path)},
            )
            for question, answer, path in chosen
        ]


def _name(kind: str, split: str, draw: random.Random, taken: set[str]) -> str:
    """A new name whose words all belong to the split: a fifth of all words do to validation."""
    while True:
        word = "".join(draw.choice(ONSETS) + draw.choice(VOWELS) + draw.choice(CODAS) for _ in range(2))
        name = word.capitalize() + draw.choice(SUFFIXES.get(kind, [""]))
        held_out = zlib.crc32(word.encode()) % 5 == 0
        if held_out == (split == "validation") and word not in taken:
            taken.add(word)
            return name
