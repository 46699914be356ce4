"""BM25 in SQL: the ranking of SQLite's FTS5, from any thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.search import fts5_rankings, make_corpus
from tasks.environments.search.bm25 import Bm25Retriever
from tasks.environments.search.documents import Document


@pytest.fixture(scope="module")
def ranked():
    documents, queries = make_corpus(20_000, 1_000)
    retriever = Bm25Retriever(documents)
    mine = [
        ranking
        for start in range(0, 1_000, 50)
        for ranking in retriever.rank(queries[start : start + 50], 10)
    ]
    return documents, queries, retriever, mine


def test_the_ranking_is_that_of_fts5_on_a_thousand_queries_over_twenty_thousand_documents(ranked):
    documents, queries, _, mine = ranked
    for query, found, right in zip(queries, mine, fts5_rankings(documents, queries, 10), strict=True):
        assert [number for number, _ in found] == [number for number, _ in right], query
        assert [score for _, score in found] == pytest.approx([score for _, score in right], abs=1e-8)


def test_threads_find_what_one_finds(ranked):
    _, queries, retriever, mine = ranked
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda query: retriever.rank([query], 10)[0], queries[:100]))
    assert found == mine[:100]


def test_words_are_found_whatever_their_case_and_accents():
    retriever = Bm25Retriever([Document("a", "Zürich", "A city."), Document("b", "Bern", "Another, too.")])
    [found] = asyncio.run(retriever.search(["ZURICH?!"], 5))
    assert [document.document_id for document in found] == ["a"]


@pytest.mark.parametrize("query", ["", "?!", "'; DROP TABLE postings; --", "unknown"])
def test_a_query_without_a_known_word_finds_nothing(query):
    retriever = Bm25Retriever(
        [Document("a", "One", "text"), Document("b", "", ""), Document("c", "Two", "text")]
    )
    assert retriever.rank([query, "one"], 5)[0] == []
    assert [number for number, _ in retriever.rank([query, "one"], 5)[1]] == [0]
