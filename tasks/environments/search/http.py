"""A retriever that runs elsewhere, with the endpoint of Search-R1's retrieval server.

`POST {"queries": [...], "topk": n, "return_scores": true}` answers
`{"result": [[{"document": {"id": ..., "contents": "title\\ntext"}, "score": ...}, ...], ...]}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from tasks.environments.search.documents import Document, contents_document
from tasks.environments.tools import ToolUnavailable

ATTEMPTS = 3


class HttpRetriever:
    def __init__(self, url: str, timeout: float = 20.0) -> None:
        self._url, self._timeout = url, timeout

    async def search(self, queries: Sequence[str], count: int) -> list[list[Document]]:
        body = {"queries": list(queries), "topk": count, "return_scores": True}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # A client for each request: a shared one would belong to the event loop that made it.
                async with httpx.AsyncClient(timeout=self._timeout) as client:
                    response = await client.post(self._url, json=body)
                    response.raise_for_status()
                    return _documents(response.json(), len(queries), count)
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                if attempt == ATTEMPTS:
                    raise ToolUnavailable(
                        f"Retriever {self._url} did not answer in {ATTEMPTS} attempts: "
                        f"{type(error).__name__}: {error}"
                    ) from error
                await asyncio.sleep(0.2 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


def _documents(answer: Any, queries: int, count: int) -> list[list[Document]]:
    found = [[_document(hit) for hit in hits[:count]] for hits in answer["result"]]
    if len(found) != queries:
        raise ValueError(f"{len(found)} results for {queries} queries")
    return found


def _document(hit: Any) -> Document:
    document = hit.get("document", hit)  # without scores, the documents come bare
    text = document["contents"] if "contents" in document else document["text"]
    return contents_document(str(document.get("id", "")), document.get("title"), str(text))
