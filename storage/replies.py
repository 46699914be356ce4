"""What judges replied, by what they were asked: a question that was paid for once is not asked again.

It is not a part of any run: a stage that died, another scoring of the same rollouts, and forks all find it.
"""

from __future__ import annotations

from storage.store import Store


class StoredReplies:
    """Texts by key, each a file under `judge_replies/`, written whole or not at all."""

    def __init__(self, store: Store) -> None:
        self._files = store.files

    def read(self, key: str) -> str | None:
        return self._files.read_text(_file(key))

    def write(self, key: str, text: str) -> None:
        self._files.write_text(_file(key), text)


def _file(key: str) -> str:
    if not key.isalnum():
        raise ValueError(f"a key is hexadecimal, got {key!r}")
    return f"judge_replies/{key[:2]}/{key}.json"
