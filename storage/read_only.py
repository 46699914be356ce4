"""Stores as DuckDB sees them: a file system of its own that can be read and never written.

DuckDB can be kept to some folders, but not from writing there: `COPY … TO` hides even in a SELECT. So local
files are closed to it, and it is given `store://0/…`, `store://1/…`: the stores of a connection by number,
whatever their paths look like.
"""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Sequence
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
        file = self._local(path).open("rb")
        # DuckDB asks for the size by path next. A stage may replace the file in between: tell of this one.
        self._opened.path, self._opened.size = path, os.fstat(file.fileno()).st_size
        return file

    def size(self, path: str) -> int:
        if getattr(self._opened, "path", None) == path:
            return self._opened.size
        return self._local(path).stat().st_size

    def glob(self, path: str, **_: Any) -> list[str]:
        root, pattern = self._split(path)
        number = path.removeprefix(f"{PROTOCOL}://").partition("/")[0]
        found = glob.iglob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 - Path.glob is slower
        return [f"{number}/{name}" for name in sorted(found)]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        local = self._local(path)
        kind = "directory" if local.is_dir() else "file"
        return {"name": path, "size": local.stat().st_size, "type": kind}

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
        return datetime.fromtimestamp(self._local(path).stat().st_mtime, UTC)

    def _refuse(self, *_: Any, **__: Any) -> None:
        raise PermissionError("stores are read-only in SQL")

    mkdir = makedirs = mv = move = rm = rm_file = rmdir = delete = copy = cp_file = touch = _refuse

    def _local(self, path: str) -> Path:
        root, relative = self._split(path)
        return root / relative

    def _split(self, path: str) -> tuple[Path, str]:
        number, _, relative = path.removeprefix(f"{PROTOCOL}://").partition("/")
        parts = PurePosixPath(relative).parts
        if ".." in parts or relative.startswith("/"):
            raise PermissionError(f"{path} leads out of its store")
        return self._roots[int(number)], relative
