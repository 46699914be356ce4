"""Files that appear whole or not at all, and survive a power cut once they have appeared."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from pathlib import Path


class LocalFiles:
    """A folder whose files are published by rename. Paths are relative to its root, with '/'."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, relative: str) -> Path:
        return self.root / relative

    def exists(self, relative: str) -> bool:
        return self.path(relative).exists()

    def scratch(self, folder: str, suffix: str = "") -> Path:
        """A fresh path under `_staging` to build something in, on the same file system as its target."""
        parent = self.path(f"_staging/{folder}")
        parent.mkdir(parents=True, exist_ok=True)
        return parent / f"tmp-{uuid.uuid4().hex}{suffix}"

    def publish(self, built: Path, relative: str) -> None:
        """Move a finished file or folder into place. What stood there is kept under `_replaced`.

        What is there already, byte for byte, stays: a stage that died before its record was written publishes
        the same once more. A file is replaced in one atomic step. A folder cannot be: for an instant nothing
        stands at `relative`, and whoever reads folders goes by their manifest.
        """
        target = self.path(relative)
        if target.exists() and digest_tree(target) == digest_tree(built):
            _remove(built)
            return
        sync_tree(built)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            self._keep_replaced(target, relative)
        os.replace(built, target)
        _sync_folder(target.parent)

    def write_text(self, relative: str, text: str) -> None:
        """Publish a small text file, without keeping what it replaces."""
        built = self.scratch("text")
        built.write_text(text, encoding="utf-8")
        sync_tree(built)
        target = self.path(relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(built, target)
        _sync_folder(target.parent)

    def read_text(self, relative: str) -> str | None:
        try:
            return self.path(relative).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def remove(self, relative: str) -> None:
        _remove(self.path(relative))

    def _keep_replaced(self, target: Path, relative: str) -> None:
        kept = self.path(f"_replaced/{uuid.uuid4().hex[:12]}/{relative}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            os.replace(target, kept)
        else:
            os.link(target, kept)  # a second name: the file is never absent from its first one


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as `sha256:…`."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def digest_tree(path: Path) -> str:
    """Digest of a file, or of a folder: its files' names and digests, in order of name."""
    if path.is_file():
        return digest_file(path)
    total = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(f"{file.relative_to(path).as_posix()}\0{digest_file(file)}\0".encode())
    return f"sha256:{total.hexdigest()}"


def sync_tree(path: Path) -> None:
    """fsync a file, or every file and folder below a folder."""
    if path.is_dir():
        for child in path.iterdir():
            sync_tree(child)
        _sync_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
