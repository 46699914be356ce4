"""Stores as DuckDB sees them: a file system of its own that can be read and never written.

DuckDB can be kept to some folders, but not from writing there: `COPY … TO` hides even in a SELECT. So local
files are closed to it, and it is given `store://0/…`, `store://1/…`: the stores of a connection by number,
whatever their paths look like.

DuckDB opens a Parquet file several times in a query. A stage may replace it in between, and the footer of
one file over the rows of another is garbage. So a listed file is pinned: `…/data.parquet#INODE` is that very
file, found under `_replaced` if need be.
"""

from __future__ import annotations

import glob
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]

PROTOCOL = "store"


class ReadOnlyStores(AbstractFileSystem):
    """Reads below `roots`. Whatever would change a file raises PermissionError."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, roots: Sequence[Path]) -> None:
        super().__init__()
        self._roots = roots
        self._opened = threading.local()

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise PermissionError(f"{path}: stores are read-only in SQL")
        relative, pin = self._pin(path)
        for candidate in self._candidates(path):
            try:
                file = candidate.open("rb")
            except FileNotFoundError:
                continue
            state = os.fstat(file.fileno())
            if pin is None or state.st_ino == pin:
                # DuckDB asks for the size by path next; tell of this file, whatever stands there by then.
                self._opened.path, self._opened.size = path, state.st_size
                return file
            file.close()
        raise FileNotFoundError(f"{relative} was removed while it was read; ask again")

    def size(self, path: str) -> int:
        if getattr(self._opened, "path", None) == path:
            return self._opened.size
        return self._state(path).st_size

    def glob(self, path: str, **_: Any) -> list[str]:
        root, pattern = self._split(path)
        number = path.removeprefix(f"{PROTOCOL}://").partition("/")[0]
        found = glob.iglob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 - Path.glob is slower
        return [f"{number}/{name}{_pin_of(root / name)}" for name in sorted(found)]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        state = self._state(path)
        kind = "directory" if stat.S_ISDIR(state.st_mode) else "file"
        return {"name": path, "size": state.st_size, "type": kind}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        names = [f"{path.rstrip('/')}/{child.name}" for child in self._local(path).iterdir()]
        return [self.info(name) for name in names] if detail else names

    def exists(self, path: str, **_: Any) -> bool:
        return self._local(path).exists()

    def isfile(self, path: str) -> bool:
        return self._local(path).is_file()

    def isdir(self, path: str) -> bool:
        return self._local(path).is_dir()

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._state(path).st_mtime, UTC)

    def _refuse(self, *_: Any, **__: Any) -> None:
        raise PermissionError("stores are read-only in SQL")

    mkdir = makedirs = mv = move = rm = rm_file = rmdir = delete = copy = cp_file = touch = _refuse

    def _local(self, path: str) -> Path:
        root, relative = self._split(self._pin(path)[0])
        return root / relative

    def _state(self, path: str) -> os.stat_result:
        pin = self._pin(path)[1]
        for candidate in self._candidates(path):
            with suppress(FileNotFoundError):
                state = candidate.stat()
                if pin is None or state.st_ino == pin:
                    return state
        raise FileNotFoundError(f"{path} is not there")

    def _candidates(self, path: str) -> Iterator[Path]:
        """Where a file may be: in its place, and what replaced it put it under `_replaced` before that."""
        root, relative = self._split(self._pin(path)[0])
        yield root / relative
        if self._pin(path)[1] is not None:
            yield from (root / "_replaced").glob(f"*/{glob.escape(relative)}")

    @staticmethod
    def _pin(path: str) -> tuple[str, int | None]:
        place, separator, pin = path.rpartition(".parquet#")
        return (f"{place}.parquet", int(pin)) if separator else (path, None)

    def _split(self, path: str) -> tuple[Path, str]:
        number, _, relative = path.removeprefix(f"{PROTOCOL}://").partition("/")
        parts = PurePosixPath(relative).parts
        if ".." in parts or relative.startswith("/"):
            raise PermissionError(f"{path} leads out of its store")
        return self._roots[int(number)], relative


def _pin_of(file: Path) -> str:
    try:
        return f"#{file.stat().st_ino}" if file.suffix == ".parquet" else ""
    except FileNotFoundError:
        return ""
