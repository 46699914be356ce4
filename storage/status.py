"""Where each piece of work of a run stands, judged by the digests of the files as they are now."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from storage.errors import StoreError
from storage.layout import StageKey, check_name
from storage.stages import StageRecord, StageState, stage_state
from storage.store import Store


@dataclass(frozen=True)
class StageStatus:
    key: StageKey
    state: StageState
    reason: str
    record: StageRecord


def run_status(store: Store, run: str) -> list[StageStatus]:
    """Every recorded stage of a run, in the order in which they began.

    A stage is stale too when what it read comes from a stale stage. An input that is gone, because
    `rollmill gc` removed it, makes nothing stale: what was made from it is still what it was. Settings are
    not compared: only the stage itself knows which of them it depends on.

    Raises:
        StoreError: there is no such run, or a record cannot be read.
    """
    store.existing_run(run)
    digests: dict[str, str | None] = {}
    found: list[StageStatus] = []
    stale_outputs: dict[str, StageKey] = {}
    for key, record in sorted(stage_records(store, run), key=lambda pair: pair[1].started_at):
        for path in record.inputs:
            if path not in digests:
                digests[path] = store.digest(path)
        inputs = {path: digests[path] or recorded for path, recorded in record.inputs.items()}
        state, reason = stage_state(store, key, inputs, record.settings_digest)
        removed = [path for path in record.outputs if _was_cleaned_up(store, path)]
        if state is StageState.MISSING and removed:
            state, reason = StageState.CURRENT, f"done; {', '.join(removed)} has been removed since"
        built_on = next((path for path in record.inputs if path in stale_outputs), None)
        if state is StageState.CURRENT and built_on is not None:
            state, reason = StageState.STALE, f"{built_on} comes from stale {stale_outputs[built_on]}"
        gone = [path for path in record.inputs if digests[path] is None]
        if state is StageState.CURRENT and gone:
            reason = f"done; {', '.join(gone)} has been removed since"
        if state is StageState.STALE:
            stale_outputs.update(dict.fromkeys(record.outputs, key))
        found.append(StageStatus(key, state, reason, record))
    return found


def _was_cleaned_up(store: Store, path: str) -> bool:
    """Whether `path` is an adapter that is gone, while a later one of its run is there."""
    match = re.fullmatch(r"adapters/run=([^/]+)/step=(\d+)", path)
    if match is None or store.files.exists(path):
        return False
    return max(store.adapter_steps(match[1]), default=-1) > int(match[2])


def stage_records(store: Store, run: str) -> Iterator[tuple[StageKey, StageRecord]]:
    """The stage records of a run. Raises StoreError for one that cannot be read."""
    folder = store.root / "stages" / f"run={check_name('run', run)}"
    known = {field.name for field in fields(StageRecord)}
    for path in sorted(folder.rglob("*.json")):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            record = StageRecord(**{name: value for name, value in values.items() if name in known})
        except (ValueError, TypeError) as error:
            raise StoreError(f"The stage record {path} cannot be read: {error}") from error
        yield StageKey(record.run, record.stage, record.step, record.split, record.scorer), record
