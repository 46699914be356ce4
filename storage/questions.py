"""Shipped questions: one SQL file each, over the views of `catalog.py`.

A file begins with `-- Title`, and may go on with comment lines that say how to read its answer. It names its
parameters as `$run` or `$step`; one that is not given is NULL, which means all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from storage.errors import StoreError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

QUESTION_FILES = Path(__file__).parent / "questions"


@dataclass(frozen=True)
class Question:
    name: str
    title: str
    how_to_read: str
    sql: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters, in order of their first use."""
        return tuple(dict.fromkeys(re.findall(r"\$([a-z_]+)", self.sql)))


def list_questions() -> list[Question]:
    """All shipped questions, by name."""
    return [_read(path) for path in sorted(QUESTION_FILES.glob("*.sql"))]


def find_question(name: str) -> Question:
    """The question of that name. Raises StoreError that lists the names there are."""
    questions = {question.name: question for question in list_questions()}
    if name not in questions:
        raise StoreError(f"There is no question {name!r}. There are: {', '.join(questions)}.")
    return questions[name]


def ask(connection: DuckDBPyConnection, question: Question, **parameters: Any) -> pa.Table:
    """The answer as an Arrow table.

    Args:
        connection: from `catalog.connect`.
        parameters: values by name; one left out, or None, is NULL.

    Raises:
        StoreError: the question has no parameter of that name.
    """
    unknown = [
        name for name, value in parameters.items() if name not in question.parameters and value is not None
    ]
    if unknown:
        takes = ", ".join(question.parameters) or "none"
        raise StoreError(f"{question.name} has no parameter {', '.join(unknown)}; its parameters: {takes}.")
    values = {name: parameters.get(name) for name in question.parameters}
    return connection.sql(question.sql, params=values).to_arrow_table()


def _read(path: Path) -> Question:
    comments: list[str] = []
    sql = path.read_text(encoding="utf-8")
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        comments.append(line.removeprefix("--").strip())
    return Question(path.stem, comments[0], " ".join(comments[1:]), sql)
