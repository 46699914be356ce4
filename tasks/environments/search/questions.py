"""Questions with short answers, from the files in which the common sets are passed around."""

from __future__ import annotations

from typing import Any

from storage.errors import ScenarioError
from storage.records import Scenario
from tasks.environments.search.documents import read_rows

# HotpotQA and NQ-open say `answer`, the sets of FlashRAG and Search-R1 `golden_answers`, others `answers`.
ANSWERS = ("answer", "golden_answers", "answers")
IDS = ("id", "_id", "question_id")


def load_questions(path: str) -> list[Scenario]:
    """A scenario for each row of a Parquet or JSONL file with `question` and its accepted answers.

    An answer is a string or a list of strings. Where the rows have no id, their numbers are it.

    Raises:
        ConfigError: the file cannot be read.
        ScenarioError: a row has no question or no answer; it is named.
    """
    return [_scenario(row, f"{path}, row {number}", number) for number, row in enumerate(read_rows(path))]


def _scenario(row: dict[str, Any], place: str, number: int) -> Scenario:
    question = row.get("question")
    given = next((row[name] for name in ANSWERS if row.get(name)), None)
    if isinstance(given, dict):  # SQuAD's {"text": [...], "answer_start": [...]}
        given = given.get("text")
    answers = [given] if isinstance(given, str) else given
    if not isinstance(question, str) or not question.strip():
        raise ScenarioError(f"{place} has no text under `question`; its columns are {', '.join(row)}.")
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers) or not answers:
        raise ScenarioError(f"{place} has no answer, a string or list of them, under {', '.join(ANSWERS)}.")
    identity = next((str(row[name]) for name in IDS if row.get(name) is not None), f"question-{number}")
    return Scenario(identity, {"question": question.strip(), "answers": answers})
