"""Answer a question by searching a corpus: the tool `search`, then a reply with `Answer: ...`.

Reward: 0.1 x (format - 1) + grade, as the Tinker cookbook's search task has it. `format` is 1 where the
final reply states an answer on a line that begins with `Answer:`, and the grade is SQuAD's exact match or F1.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from storage.errors import ScenarioError
from storage.records import Message, Scenario, StopReason, ToolCall
from tasks.environments.base import Step
from tasks.environments.search.documents import Document, Retriever, check_table
from tasks.environments.search.grading import exact_match, f1, normalise, stated_answer
from tasks.environments.search.questions import load_questions
from tasks.environments.search.retrievers import RetrieverSettings, corpus_retriever
from tasks.environments.tool_environment import ToolEnvironment
from tasks.environments.tools import Tool, function_tool

FORMAT_PENALTY = 0.1
INSTRUCTIONS = (
    "Answer the question. What you need to know is in a corpus: look it up with the tool `search`, several "
    "times if one result leads to the next. When you know it, reply with one line, `Answer:` and the "
    "shortest answer, nothing else."
)


class Search(ToolEnvironment):
    """Questions over a corpus.

    Args:
        corpus: Parquet or JSONL with `text` (or `contents`), `id` and `title`; not for an HTTP retriever.
        questions: the file of each split, see `load_questions`.
        retriever: `{"kind": "bm25"}`, `{"kind": "dense", "encoder": ...}` or `{"kind": "http", "url": ...}`.
        documents: how many documents a query finds.
        max_queries: queries in one call.
        max_query: characters of a query.
        max_document: characters of a document that the policy reads.
        grade: what the answer is worth.
        search_reward: added once where the episode has searched with success. It shapes small models that do
            not call tools yet; leave it at 0 for others.
        instructions: the system message.
        demonstration: a finished conversation that comes before the question, for small models. Messages
            are `{"role": ..., "content": ...}`, and `{"role": "assistant", "query_list": [...]}` to search.
    """

    def __init__(
        self,
        corpus: str | None = None,
        questions: Mapping[str, str] | None = None,
        retriever: Mapping[str, Any] | None = None,
        documents: int = 3,
        max_queries: int = 4,
        max_query: int = 300,
        max_document: int = 800,
        grade: Literal["exact_match", "f1"] = "exact_match",
        search_reward: float = 0.0,
        instructions: str = INSTRUCTIONS,
        demonstration: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(max_output=max_queries * documents * (max_document + 200) + 1000)
        if min(documents, max_queries, max_query, max_document) < 1:
            raise ValueError("documents, max_queries, max_query and max_document must be 1 or more")
        if grade not in ("exact_match", "f1"):
            raise ValueError(f"grade is exact_match or f1, not {grade!r}")
        self.retriever_settings = TypeAdapter[RetrieverSettings](RetrieverSettings).validate_python(
            retriever or {"kind": "bm25"}
        )
        if (self.retriever_settings.kind == "http") != (corpus is None) and type(self) is Search:
            raise ValueError("give a corpus, or an http retriever, which has one of its own")
        if corpus is not None:
            check_table(corpus)
        self.corpus, self.questions = corpus, questions or {}
        self.documents, self.max_document = documents, max_document
        self.grade, self.search_reward, self.instructions = grade, search_reward, instructions
        self.demonstration = [_demonstrated(shown, f"example{n}") for n, shown in enumerate(demonstration)]
        self.toolbox.add([self._tool(max_queries, max_query)])
        self._found = self._answer_found = False

    def retriever(self, scenario: Scenario) -> Retriever:
        """What the scenario's corpus is searched with."""
        return corpus_retriever(self.retriever_settings, self.corpus)

    async def reset(self, scenario: Scenario) -> Sequence[Message]:
        self._answers: list[str] = list(scenario.payload["answers"])
        self._retriever = await asyncio.to_thread(self.retriever, scenario)  # the first one builds the index
        self._found = self._answer_found = False
        question = Message("user", str(scenario.payload["question"]))
        return [Message("system", self.instructions), *self.demonstration, question]

    async def answer(self, message: Message) -> Step:
        stated = stated_answer(message.content or "")
        return self._graded(stated, done=True)

    async def cut(self, reason: StopReason) -> Step:
        """An episode that a limit ended has stated no answer."""
        return self._graded(None, done=False)

    def scenarios(self, split: str, count: int, seed: int) -> Sequence[Scenario]:
        if split not in self.questions:
            raise ScenarioError(f"environment.args.questions names no file for the {split} split.")
        found = load_questions(self.questions[split])
        if count > len(found):
            raise ScenarioError(
                f"{self.questions[split]} has {len(found)} questions, and {count} were asked for. Lower "
                f"scenarios.{split}."
            )
        return random.Random(f"search/{split}/{seed}").sample(found, count)

    def _graded(self, stated: str | None, *, done: bool) -> Step:
        parts = {
            "format": float(stated is not None),
            "exact_match": 0.0 if stated is None else exact_match(stated, self._answers),
            "f1": 0.0 if stated is None else f1(stated, self._answers),
            "searched": float(self._found),
            "answer_found": float(self._answer_found),
        }
        reward = FORMAT_PENALTY * (parts["format"] - 1) + parts[self.grade]
        return Step(reward=reward + self.search_reward * parts["searched"], done=done, metrics=parts)

    def _tool(self, max_queries: int, max_query: int) -> Tool:
        Query = Annotated[str, Field(min_length=1, max_length=max_query)]
        Queries = Annotated[
            list[Query],
            Field(min_length=1, max_length=max_queries, description="What to search for."),
        ]

        async def search(query_list: Any) -> str:
            """Search the corpus; returns the best documents for each query."""
            results = await self._retriever.search(query_list, self.documents)
            self._found = self._found or any(results)
            shown = "\n\n".join(
                f"Results for {query!r}:\n{self._shown(found)}"
                for query, found in zip(query_list, results, strict=True)
            )
            text = f" {normalise(shown)} "
            self._answer_found |= any(f" {normalise(answer)} " in text for answer in self._answers)
            return shown

        search.__annotations__["query_list"] = Queries
        return function_tool(search)

    def _shown(self, found: Sequence[Document]) -> str:
        if not found:
            return "nothing was found"
        lines = []
        for place, document in enumerate(found, start=1):
            title = f"{document.title[:200]}: " if document.title else ""
            lines.append(f"[{place}] {title}{document.text[: self.max_document]}")
        return "\n".join(lines)


def _demonstrated(shown: Mapping[str, Any], call_id: str) -> Message:
    queries = shown.get("query_list")
    if shown.keys() - {"role", "content", "query_list"} or ("content" in shown) == (queries is not None):
        raise ValueError(f"a message of the demonstration has a role and content or query_list, not {shown}")
    if queries is None:
        return Message(shown["role"], shown["content"])
    call = ToolCall(call_id, "search", json.dumps({"query_list": queries}))
    return Message(shown["role"], None, tool_calls=(call,))
