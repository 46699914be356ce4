"""Where each piece of work of a run stands, judged by the digests of the files as they are now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from storage.errors import StoreError
from storage.layout import StageKey, check_name
from storage.stages import StageRecord, StageState, parse_record, stage_state
from storage.store import Store


@dataclass(frozen=True)
class StageStatus:
    key: StageKey
    state: StageState
    reason: str
    record: StageRecord


def run_status(
    store: Store, run: str, *, digests_of: Literal["files", "records"] = "files"
) -> list[StageStatus]:
    """Every recorded stage of a run, in the order of steps and then of their beginnings.

    A stage is stale too when what it read comes from a stale stage. An input that is gone, because
    `rollmill gc` removed it, makes nothing stale: what was made from it is still what it was. Settings are
    not compared: only the stage itself knows which of them it depends on.

    Args:
        digests_of: `files` computes each input's digest anew; `records` takes what the stage that published
            it wrote down, which reads no data and misses only what was changed from outside.

    Raises:
        StoreError: there is no such run, or a record cannot be read.
    """
    store.existing_run(run)
    records = sorted(stage_records(store, run), key=_position)
    digests: dict[str, str | None] = {}
    if digests_of == "records":
        for _, record in records:
            digests |= record.accepted_inputs
        for _, record in records:
            digests |= record.outputs
    found = []
    for key, record in records:
        for path in record.inputs:
            if path not in digests:
                digests[path] = store.digest(path)
        inputs = {path: digests[path] or expected for path, expected in record.accepted_inputs.items()}
        state, reason = stage_state(store, key, inputs, record.settings_digest)
        removed = [path for path in record.outputs if _was_cleaned_up(store, path)]
        if state is StageState.MISSING and removed:
            state, reason = StageState.CURRENT, f"done; {', '.join(removed)} has been removed since"
        gone = [path for path in record.inputs if digests[path] is None]
        if state is StageState.CURRENT and gone:
            reason = f"done; {', '.join(gone)} has been removed since"
        found.append(StageStatus(key, state, reason, record))
    return _spread_staleness(found)


def _spread_staleness(found: list[StageStatus]) -> list[StageStatus]:
    """Mark as stale what was made from the output of a stage that is to be done again."""
    not_final = {StageState.STALE, StageState.INVALIDATED}
    while True:
        sources = {path: item for item in found if item.state in not_final for path in item.record.outputs}
        marked = []
        for item in found:
            built_on = next((path for path in item.record.inputs if path in sources), None)
            if item.state is StageState.CURRENT and built_on is not None:
                source = sources[built_on]
                item = replace(
                    item, state=StageState.STALE, reason=f"{built_on} comes from {source.state} {source.key}"
                )
            marked.append(item)
        if marked == found:
            return found
        found = marked


def _position(entry: tuple[StageKey, StageRecord]) -> tuple[int, str]:
    """Steps in order, after what belongs to none; within a step as the stages began."""
    key, record = entry
    return (-1 if key.step is None else key.step, record.started_at)


def _was_cleaned_up(store: Store, path: str) -> bool:
    """Whether `path` is an adapter that is gone, while a later one of its run is there."""
    match = re.fullmatch(r"adapters/run=([^/]+)/step=(\d+)", path)
    if match is None or store.files.exists(path):
        return False
    return max(store.adapter_steps(match[1]), default=-1) > int(match[2])


def stage_records(store: Store, run: str) -> Iterator[tuple[StageKey, StageRecord]]:
    """The stage records of a run. Raises StoreError for one that cannot be read."""
    folder = store.root / "stages" / f"run={check_name('run', run)}"
    for path in sorted(folder.rglob("*.json")):
        try:
            record = parse_record(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError) as error:
            raise StoreError(f"The stage record {path} cannot be read: {error}") from error
        yield StageKey(record.run, record.stage, record.step, record.split, record.scorer), record
