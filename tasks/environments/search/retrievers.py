"""Which retriever a config asks for; each is made once in a process and shared by all of its episodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from tasks.environments.search.bm25 import Bm25Retriever
from tasks.environments.search.documents import Document, Retriever, read_corpus
from tasks.environments.search.http import HttpRetriever


class Bm25Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["bm25"] = "bm25"


class DenseSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["dense"]
    encoder: str  # folder of a sentence model, or package.module:function
    embeddings: str | None = None  # Parquet with id and embedding; made by the encoder where it is absent


class HttpSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["http"]
    url: str
    timeout: PositiveFloat = 20.0


RetrieverSettings = Annotated[Bm25Settings | DenseSettings | HttpSettings, Field(discriminator="kind")]

_made: dict[object, Retriever] = {}
_making = threading.Lock()


def corpus_retriever(settings: RetrieverSettings, corpus: str | None) -> Retriever:
    """The retriever over a corpus file, indexed anew when the file has changed. Raises ConfigError."""
    if corpus is None:
        return shared_retriever(settings, None, list)
    file = Path(corpus)
    stamp = (str(file.absolute()), file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else corpus
    return shared_retriever(settings, stamp, lambda: read_corpus(corpus))


def shared_retriever(
    settings: RetrieverSettings, corpus_key: object, documents: Callable[[], Sequence[Document]]
) -> Retriever:
    """The retriever of `settings` over the corpus that `corpus_key` names; `documents` is called once."""
    key = (settings, corpus_key)
    with _making:
        if key not in _made:
            _made[key] = _make(settings, documents)
        return _made[key]


def _make(settings: RetrieverSettings, documents: Callable[[], Sequence[Document]]) -> Retriever:
    if isinstance(settings, HttpSettings):
        return HttpRetriever(settings.url, settings.timeout)
    found = documents()
    if isinstance(settings, Bm25Settings):
        return Bm25Retriever(found)
    from tasks.environments.search.dense import DenseRetriever, load_encoder, read_vectors

    vectors = None if settings.embeddings is None else read_vectors(settings.embeddings, found)
    return DenseRetriever(found, load_encoder(settings.encoder), vectors)
