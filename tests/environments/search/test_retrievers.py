"""Dense and remote retrievers, corpora from files, and one index for all episodes of a process."""

import http.server
import json
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from storage.errors import ConfigError
from tasks.environments import ToolUnavailable
from tasks.environments.search.dense import DenseRetriever, load_encoder
from tasks.environments.search.documents import Document, read_corpus
from tasks.environments.search.http import HttpRetriever
from tasks.environments.search.retrievers import RetrieverSettings, corpus_retriever

WORDS = ["apple", "banana", "cherry"]
DOCUMENTS = [Document(word, word, f"All about {word}.") for word in WORDS]


def counts(texts):
    """How often each of WORDS is in a text, as its embedding."""
    return np.array([[text.count(word) for word in WORDS] for text in texts], dtype=np.float32) + 0.01


def settings(**fields):
    return TypeAdapter(RetrieverSettings).validate_python(fields)


async def test_the_nearest_vectors_come_first():
    retriever = DenseRetriever(DOCUMENTS, counts)
    found = await retriever.search(["cherry", "banana banana cherry"], 2)
    assert [[d.document_id for d in documents] for documents in found] == [
        ["cherry", "apple"],
        ["banana", "cherry"],
    ]


async def test_embeddings_come_from_a_file_in_any_order(tmp_path):
    corpus, vectors = tmp_path / "corpus.jsonl", tmp_path / "vectors.parquet"
    corpus.write_text("\n".join(json.dumps({"id": d.document_id, "text": d.text}) for d in DOCUMENTS))
    turned = [WORDS[n] for n in (2, 0, 1)]
    embeddings = [row.tolist() for row in counts(turned)]
    pq.write_table(pa.table({"id": turned, "embedding": embeddings}), vectors)
    chosen = settings(kind="dense", encoder=f"{__name__}:counts", embeddings=str(vectors))
    [found] = await corpus_retriever(chosen, str(corpus)).search(["banana"], 1)
    assert [d.document_id for d in found] == ["banana"]
    pq.write_table(pa.table({"id": turned[:2], "embedding": embeddings[:2]}), vectors)
    corpus.touch()
    with pytest.raises(ConfigError, match="no embedding of 1 documents, the first 'banana'"):
        corpus_retriever(chosen, str(corpus))


def test_a_sentence_model_is_a_folder(tiny_model):
    encode = load_encoder(str(tiny_model))
    short, long = encode(["one two"]), encode(["one two", "a longer text that makes the batch wider"])
    assert long.shape == (2, 64)
    assert long[0] == pytest.approx(short[0], abs=1e-4)  # padding changes nothing


def test_a_corpus_is_indexed_once_until_its_file_changes(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": 1, "contents": "\\"A title\\"\\nThe text."}\n')
    assert read_corpus(str(corpus)) == [Document("1", "A title", "The text.")]
    first = corpus_retriever(settings(kind="bm25"), str(corpus))
    assert corpus_retriever(settings(kind="bm25"), str(corpus)) is first
    corpus.write_text('{"id": 1, "contents": "Another"}\n{"id": 2, "contents": "B"}\n')
    assert corpus_retriever(settings(kind="bm25"), str(corpus)) is not first


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("c.txt", "x", "no Parquet or JSONL"),
        ("c.jsonl", '{"id": 1, "body": "x"}', "columns id, body"),
        ("c.parquet", "not parquet", "cannot be read"),
    ],
)
def test_a_wrong_corpus_is_refused(tmp_path, name, text, wrong):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=wrong):
        read_corpus(str(tmp_path / name))


@pytest.fixture
def search_r1_server():
    """A retrieval server that fails its first request and then answers every query with its own words."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            hits = [
                [
                    {"document": {"id": n, "contents": f'"{query}"\nNumber {n}.'}, "score": 1.0}
                    for n in range(9)
                ]
                for query in body["queries"]
            ]
            self.send_response(503 if len(asked) == 1 else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"result": hits}).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/retrieve", asked
        server.shutdown()


async def test_a_search_r1_server_is_asked_again_and_its_answers_are_bounded(search_r1_server):
    url, asked = search_r1_server
    found = await HttpRetriever(url).search(["a", "b"], 2)
    assert found[1] == [Document("0", "b", "Number 0."), Document("1", "b", "Number 1.")]
    assert asked == [{"queries": ["a", "b"], "topk": 2, "return_scores": True}] * 2


async def test_a_retriever_that_is_gone_is_no_fault_of_the_policy():
    with pytest.raises(ToolUnavailable, match="did not answer in 3 attempts"):
        await HttpRetriever("http://127.0.0.1:9/retrieve").search(["a"], 1)
