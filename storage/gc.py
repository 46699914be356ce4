"""What may be removed from a store: files that reruns replaced, and old adapters that nothing refers to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreError
from storage.layout import adapter_folder
from storage.store import Store

DAY = 86_400


@dataclass(frozen=True)
class Removal:
    path: str
    reason: str
    size: int  # bytes
    run: str | None = None  # whose lease guards it


@dataclass(frozen=True)
class Retention:
    """What is kept. A run's first adapter always is: it is what the run started from.

    Attributes:
        replaced_days: days that replaced files and unfinished work are kept.
        last_adapters: adapters that are kept of each run, the last ones; a run that goes on needs two.
        every: keep each adapter whose step is a multiple of this, too.
    """

    replaced_days: float = 7.0
    last_adapters: int = 3
    every: int | None = None

    def __post_init__(self) -> None:
        if self.last_adapters < 2:
            raise StoreError(f"A run needs its last 2 adapters to go on; {self.last_adapters} would be kept.")


def plan_removals(store: Store, policy: Retention, keep: Iterable[tuple[str, int]] = ()) -> list[Removal]:
    """What `policy` lets go of; nothing is touched.

    Args:
        keep: adapters, as (run, step), that something outside the store refers to, e.g. the champion.
    """
    kept = {*keep, *_fork_points(store)}
    return [*_replaced(store, policy), *_abandoned(store, policy), *_old_adapters(store, policy, kept)]


def remove(store: Store, removals: Iterable[Removal]) -> None:
    """Remove what was planned. Raises StoreError when a run whose adapters go is being written."""
    for removal in removals:
        if removal.run is None:
            store.files.remove(removal.path)
        else:
            with store.writer(removal.run):
                store.files.remove(removal.path)


def _fork_points(store: Store) -> Iterator[tuple[str, int]]:
    for run in store.run_names():
        parent = store.existing_run(run).get("parent")
        if parent is not None:
            yield parent["run"], parent["step"]


def _replaced(store: Store, policy: Retention) -> Iterator[Removal]:
    for folder in sorted((store.root / "_replaced").glob("*")):
        age = _days(folder)
        if age >= policy.replaced_days:
            yield Removal(f"_replaced/{folder.name}", f"replaced {age:.0f} days ago", _size(folder))


def _abandoned(store: Store, policy: Retention) -> Iterator[Removal]:
    """What was being built when its process died. Whole groups are kept: a rerun takes them up."""
    for built in sorted((store.root / "_staging").rglob("tmp-*")):
        age = _days(built)
        if age >= policy.replaced_days:
            relative = built.relative_to(store.root).as_posix()
            yield Removal(relative, f"left unfinished {age:.0f} days ago", _size(built))


def _old_adapters(store: Store, policy: Retention, kept: set[tuple[str, int]]) -> Iterator[Removal]:
    for run in store.run_names():
        steps = store.adapter_steps(run)
        for step in steps[: max(len(steps) - policy.last_adapters, 0)]:
            if step == 0 or (run, step) in kept or (policy.every is not None and step % policy.every == 0):
                continue
            relative = adapter_folder(run, step)
            reason = f"older than the last {policy.last_adapters} adapters of its run"
            yield Removal(relative, reason, _size(store.files.path(relative)), run)


def _days(path: Path) -> float:
    return (time.time() - path.stat().st_mtime) / DAY


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
