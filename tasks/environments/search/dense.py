"""Search by the cosine similarity of embeddings, computed by DuckDB."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from storage.errors import ConfigError
from tasks.environments.search.documents import Document, read_rows
from tasks.loading import load_object

Encoder = Callable[[Sequence[str]], np.ndarray]  # texts to float32 [texts, dimensions]
BATCH = 64  # texts that are encoded at once

SEARCH = """
SELECT place, number
FROM (
    SELECT place, number, array_cosine_similarity(vectors.embedding, queries.embedding) AS score
    FROM vectors CROSS JOIN queries
)
QUALIFY row_number() OVER (PARTITION BY place ORDER BY round(score, 6) DESC, number) <= $count
ORDER BY place, round(score, 6) DESC, number
"""


class DenseRetriever:
    """Exact nearest neighbours; `encode` embeds the queries, and the documents where no vectors are given.

    Args:
        vectors: float32 [documents, dimensions], in the order of `documents`.
    """

    def __init__(
        self, documents: Sequence[Document], encode: Encoder, vectors: np.ndarray | None = None
    ) -> None:
        self._documents, self._encode = list(documents), encode
        self._encoding = threading.Lock()  # an encoder is a model, and few of them are safe to share
        if vectors is None:
            vectors = self._embed([f"{document.title} {document.text}".strip() for document in documents])
        if len(vectors) != len(self._documents):
            raise ConfigError(f"There are {len(vectors)} vectors for {len(self._documents)} documents.")
        self._dimensions = vectors.shape[1]
        self._connection = duckdb.connect()
        self._connection.register("given", self._table("number", vectors))
        self._connection.execute(
            "CREATE TABLE vectors AS "
            f"SELECT number, embedding::FLOAT[{self._dimensions}] AS embedding FROM given"
        )
        self._connection.unregister("given")

    async def search(self, queries: Sequence[str], count: int) -> list[list[Document]]:
        return await asyncio.to_thread(self._search, queries, count)

    def _search(self, queries: Sequence[str], count: int) -> list[list[Document]]:
        embedded = self._embed(queries)
        with self._connection.cursor() as cursor:
            cursor.register("queries", self._table("place", embedded))
            rows = cursor.execute(SEARCH, {"count": count}).fetchall()
        found: list[list[Document]] = [[] for _ in queries]
        for place, number in rows:
            found[place].append(self._documents[number])
        return found

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        with self._encoding:
            parts = [self._encode(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        return np.concatenate(parts).astype(np.float32)

    def _table(self, key: str, vectors: np.ndarray) -> pa.Table:
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
        embeddings = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return pa.table({key: pa.array(range(len(vectors)), pa.int32()), "embedding": embeddings})


def read_vectors(path: str, documents: Sequence[Document]) -> np.ndarray:
    """Vectors from the columns `id` and `embedding` of a file, in the order of `documents`.

    Raises:
        ConfigError: a document has no vector, or the columns are missing.
    """
    rows = read_rows(path)
    if not rows or not {"id", "embedding"} <= set(rows[0]):
        raise ConfigError(f"Embeddings {path!r} lack the columns `id` and `embedding`.")
    known = {str(row["id"]): row["embedding"] for row in rows}
    missing = [d.document_id for d in documents if d.document_id not in known]
    if missing:
        raise ConfigError(f"{path!r} has no embedding of {len(missing)} documents, the first {missing[0]!r}.")
    return np.array([known[d.document_id] for d in documents], dtype=np.float32)


def load_encoder(name: str) -> Encoder:
    """`package.module:function`, or the folder of a sentence model, whose token vectors are averaged.

    Raises:
        ConfigError: the function cannot be imported, or the folder holds no model.
    """
    if not Path(name).is_dir():
        return load_object(name)
    import torch
    from transformers import AutoModel, AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModel.from_pretrained(name).eval()
    except (OSError, ValueError) as error:
        raise ConfigError(f"The sentence model in {name!r} cannot be loaded: {error}") from error

    def encode(texts: Sequence[str]) -> np.ndarray:
        inputs = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state  # [texts, tokens, dimensions]
        mask = inputs["attention_mask"].unsqueeze(-1)
        return ((hidden * mask).sum(1) / mask.sum(1)).numpy()

    return encode
