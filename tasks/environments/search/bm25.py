"""BM25 as plain SQL over DuckDB tables in memory; DuckDB's own extension for it would have to be downloaded.

score(q, d) = Σ over terms t of q:  idf(t) · f(t,d) · (k1 + 1) / (f(t,d) + k1 · (1 − b + b · |d| / mean |d|))
idf(t) = max(1e-6, ln((N − n(t) + 0.5) / (n(t) + 0.5)))

Robertson and Zaragoza, The Probabilistic Relevance Framework (2009), 3.4, with the floor of SQLite's FTS5, so
that a term in more than half of all documents does not count against those that have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from tasks.environments.search.documents import Document

K1, B = 1.2, 0.75
TERMS = r"regexp_extract_all(lower(strip_accents({text})), '[\p{{L}}\p{{N}}]+')"

BUILD = f"""
CREATE TABLE occurrences AS
    SELECT number, unnest({TERMS.format(text="title || ' ' || text")}) AS term FROM documents;
CREATE TABLE lengths AS
    SELECT number, count(term) AS length FROM documents LEFT JOIN occurrences USING (number) GROUP BY number;
CREATE TABLE terms AS
    SELECT
        term,
        (row_number() OVER (ORDER BY term))::INTEGER AS id,
        greatest(1e-6, ln(((SELECT count(*) FROM documents) - n + 0.5) / (n + 0.5))) AS idf
    FROM (SELECT term, count(DISTINCT number) AS n FROM occurrences GROUP BY term);
-- Sorted by term, so that a query reads the few row groups that hold its terms.
CREATE TABLE postings AS
    SELECT
        id,
        number,
        idf * f * ({K1} + 1) / (f + {K1} * (1 - {B} + {B} * length / mean)) AS weight
    FROM (SELECT term, number, count(*) AS f FROM occurrences GROUP BY ALL)
    JOIN terms USING (term)
    JOIN lengths USING (number)
    CROSS JOIN (SELECT avg(length) AS mean FROM lengths)
    ORDER BY id, number;
DROP TABLE occurrences; DROP TABLE lengths;
SET threads = 1; -- searches run side by side, and each is too small to be split
"""

# Sums of floats differ in their last digits with the order of addition: rounded, equal scores stay equal, and
# the order of the documents decides between them, so that a search always finds the same.
SEARCH = f"""
WITH queries AS (SELECT unnest($queries) AS query, generate_subscripts($queries, 1) AS place),
words AS (SELECT place, unnest({TERMS.format(text="query")}) AS term FROM queries),
asked AS MATERIALIZED (SELECT place, id FROM words JOIN terms USING (term)),
scores AS (
    SELECT place, number, round(sum(weight), 9) AS score
    FROM asked JOIN postings USING (id)
    GROUP BY place, number
)
SELECT place, number, score FROM scores
QUALIFY row_number() OVER (PARTITION BY place ORDER BY score DESC, number) <= $count
ORDER BY place, score DESC, number
"""


class Bm25Retriever:
    """Indexes `documents` once; every search runs on a cursor of its own, in a thread."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = list(documents)
        columns = {
            "number": pa.array(range(len(documents)), pa.int32()),
            "title": pa.array([document.title for document in documents], pa.string()),
            "text": pa.array([document.text for document in documents], pa.string()),
        }
        self._connection = duckdb.connect()
        self._connection.register("documents", pa.table(columns))
        self._connection.execute(BUILD)
        self._connection.unregister("documents")

    async def search(self, queries: Sequence[str], count: int) -> list[list[Document]]:
        ranked = await asyncio.to_thread(self.rank, queries, count)
        return [[self._documents[number] for number, _ in ranking] for ranking in ranked]

    def rank(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the positions of the best `count` documents with their scores, best first."""
        with self._connection.cursor() as cursor:
            rows = cursor.execute(SEARCH, {"queries": list(queries), "count": count}).fetchall()
        found: list[list[tuple[int, float]]] = [[] for _ in queries]
        for place, number, score in rows:
            found[place - 1].append((number, score))
        return found
