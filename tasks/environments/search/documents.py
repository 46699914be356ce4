"""What a search finds, and the corpora that are searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb

from storage.errors import ConfigError

READERS = {".parquet": "read_parquet", ".jsonl": "read_json", ".json": "read_json"}
TEXT_COLUMNS = ("text", "contents")  # `contents` is Search-R1's name: a title in quotes, then the text


@dataclass(frozen=True)
class Document:
    document_id: str
    title: str
    text: str


class Retriever(Protocol):
    """Finds documents. One retriever serves all episodes of a process, so it must be safe to share."""

    async def search(self, queries: Sequence[str], count: int) -> list[list[Document]]:
        """The best `count` documents of each query, best first.

        Raises:
            ToolUnavailable: what it searches cannot be reached.
        """
        ...


def read_corpus(path: str) -> list[Document]:
    """Documents of a Parquet or JSONL file with columns `text` (or `contents`), and perhaps `id` and `title`.

    Raises:
        ConfigError: the file is missing, of another kind, empty or lacks the text.
    """
    rows = read_rows(path)
    if not rows:
        raise ConfigError(f"Corpus {path} holds no document.")
    column = next((name for name in TEXT_COLUMNS if name in rows[0]), None)
    if column is None:
        raise ConfigError(
            f"Corpus {path} has the columns {', '.join(rows[0])}, and none of {' or '.join(TEXT_COLUMNS)}."
        )
    return [
        contents_document(str(row.get("id", number)), row.get("title"), str(row[column] or ""))
        for number, row in enumerate(rows)
    ]


def contents_document(document_id: str, title: object, text: str) -> Document:
    """A document whose title, if it has none of its own, is the first of several lines of its text."""
    if title is None and "\n" in text:
        title, text = text.split("\n", 1)
    return Document(document_id, str(title or "").strip().strip('"'), text.strip())


def check_table(path: str) -> None:
    """Raises ConfigError where there is no Parquet or JSONL file; does not open it."""
    if Path(path).suffix not in READERS or not Path(path).is_file():
        raise ConfigError(f"{path!r} is no Parquet or JSONL file ({', '.join(READERS)}) that exists.")


def read_rows(path: str) -> list[dict[str, object]]:
    """Rows of a Parquet or JSONL file. Raises ConfigError when it cannot be read."""
    file = Path(path)
    check_table(path)
    reader = READERS[file.suffix]
    try:
        with duckdb.connect() as connection:
            rows: list[dict[str, object]] = (
                connection.sql(f"SELECT * FROM {reader}(?)", params=[str(file)]).to_arrow_table().to_pylist()
            )
            return rows
    except duckdb.Error as error:
        raise ConfigError(f"{path!r} cannot be read: {error}") from error
