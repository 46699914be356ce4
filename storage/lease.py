"""One writer for each run. The kernel drops the lock when its holder dies, so no lease goes stale."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from storage.errors import StoreError


@contextmanager
def hold_lease(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`. Raises StoreError with the holder's name when it is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise StoreError(f"{what} is being written by {holder}. Wait for it, or stop it.") from None
        file.truncate(0)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {started}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
