"""Ranks 1,000 queries over 20,000 documents with the embedded BM25, and with SQLite's FTS5 beside it.

    python benchmarks/search.py

Documents have 20 to 120 words of a vocabulary of 30,000 with frequencies by Zipf's law, 1 / (rank + 20);
queries have 2 to 8 of them.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

if not __package__:  # run as a file: its folder comes first then, and hides the packages behind it
    sys.path[0] = str(Path(__file__).parents[1])

from tasks.environments.search.bm25 import Bm25Retriever
from tasks.environments.search.documents import Document

Ranking = list[tuple[int, float]]  # positions of documents with their scores, best first


def make_corpus(documents: int, queries: int, seed: int = 0) -> tuple[list[Document], list[str]]:
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(30_000)]
    weights = list(accumulate(1 / (rank + 20) for rank in range(len(words))))

    def text(least: int, most: int) -> str:
        return " ".join(draw.choices(words, cum_weights=weights, k=draw.randint(least, most)))

    corpus = [Document(str(number), text(1, 4), text(20, 120)) for number in range(documents)]
    return corpus, [text(2, 8) for _ in range(queries)]


def fts5_rankings(documents: Sequence[Document], queries: Sequence[str], count: int) -> list[Ranking]:
    """The same by SQLite: its bm25() is the negative of the score."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE documents USING fts5(text)")
        rows = [(number, f"{d.title} {d.text}") for number, d in enumerate(documents)]
        connection.executemany("INSERT INTO documents(rowid, text) VALUES (?, ?)", rows)
        ask = "SELECT rowid, -rank FROM documents WHERE documents MATCH ? ORDER BY rank LIMIT ?"
        rankings = []
        for query in queries:
            terms = " OR ".join(f'"{word}"' for word in query.split())
            found = connection.execute(ask, [terms, 4 * count]).fetchall()  # equal scores come in any order
            rankings.append(sorted(found, key=lambda hit: (-round(hit[1], 9), hit[0]))[:count])
        return rankings


def main() -> None:
    documents, queries = make_corpus(20_000, 1_000)
    clock = time.perf_counter()
    retriever = Bm25Retriever(documents)
    print(f"index of {len(documents):,} documents: {time.perf_counter() - clock:.2f} s")

    times, found = [], []
    for query in queries:
        clock = time.perf_counter()
        found += retriever.rank([query], 10)
        times.append(1000 * (time.perf_counter() - clock))
    times.sort()
    print(
        f"one query at a time: {sum(times) / len(times):.1f} ms mean, {times[-len(times) // 20]:.1f} ms p95"
    )

    clock = time.perf_counter()
    for start in range(0, len(queries), 4):
        retriever.rank(queries[start : start + 4], 10)
    print(f"four queries in a call: {1000 * (time.perf_counter() - clock) / len(queries):.1f} ms a query")

    clock = time.perf_counter()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda query: retriever.rank([query], 10), queries))
    print(f"eight threads: {1000 * (time.perf_counter() - clock) / len(queries):.1f} ms a query")

    clock = time.perf_counter()
    reference = fts5_rankings(documents, queries, 10)
    print(f"FTS5, index included: {1000 * (time.perf_counter() - clock) / len(queries):.1f} ms a query")
    same = sum(
        [number for number, _ in a] == [number for number, _ in b]
        for a, b in zip(found, reference, strict=True)
    )
    print(f"same ten documents in the same order: {same} of {len(queries)}")


if __name__ == "__main__":
    main()
