"""Stage records: what was done, from which inputs, by which code. They are the truth about progress.

A stage is *current* when its record says completed, its inputs still have the digests it read, and its
settings are the same. It is *stale* when it was completed from something else. Work that was begun and not
completed is simply begun again: whatever it had published is published once more, from the same inputs.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from storage.errors import StoreError
from storage.layout import StageKey
from storage.schemas import Dataset
from storage.store import Store
from storage.version import code_version


class StageState(StrEnum):
    MISSING = "missing"
    INVALIDATED = "invalidated"  # done, and asked to be done again
    INTERRUPTED = "interrupted"  # begun, and neither completed nor failed: running now, or killed
    FAILED = "failed"
    STALE = "stale"
    CURRENT = "current"


@dataclass(frozen=True)
class StageRecord:
    """The JSON document of one stage. Digests are of files as they were read and published."""

    run: str
    stage: str
    step: int | None
    split: str | None
    scorer: str | None
    state: str  # running | completed | failed | invalidated
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    settings_digest: str
    code_version: str
    host: str
    pid: int
    started_at: str
    seconds: float | None = None
    error: str | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)  # inputs that changed since, taken as they are

    @property
    def accepted_inputs(self) -> dict[str, str]:
        """Digests that the inputs may have now, for this stage to be current."""
        return {**self.inputs, **self.accepted}


def parse_record(text: str) -> StageRecord:
    """Raises ValueError or TypeError when `text` is no stage record. Unknown fields are left out."""
    known = {field.name for field in fields(StageRecord)}
    return StageRecord(**{name: value for name, value in json.loads(text).items() if name in known})


def read_record(store: Store, key: StageKey) -> StageRecord | None:
    text = store.files.read_text(key.record_file)
    return None if text is None else parse_record(text)


def write_record(store: Store, key: StageKey, record: StageRecord) -> None:
    store.files.write_text(key.record_file, json.dumps(asdict(record), indent=2) + "\n")


def invalidate_stage(store: Store, key: StageKey) -> None:
    """Have a stage done again by whoever comes to it next. Raises StoreError when it has not run."""
    record = read_record(store, key)
    if record is None:
        raise StoreError(f"{key} has not run, so that it cannot be run again.")
    write_record(store, key, replace(record, state="invalidated"))


def accept_stage(store: Store, key: StageKey) -> None:
    """Take a stale stage for current: its inputs may be what they are now. The record keeps both digests."""
    record = read_record(store, key)
    if record is None:
        raise StoreError(f"{key} has not run: there is nothing to accept.")
    now = {path: store.digest(path) or recorded for path, recorded in record.inputs.items()}
    changed = {path: digest for path, digest in now.items() if digest != record.inputs[path]}
    write_record(store, key, replace(record, accepted=changed))


def stage_state(
    store: Store, key: StageKey, inputs: Mapping[str, str], settings_digest: str
) -> tuple[StageState, str]:
    """State of a stage if it were to run from `inputs` now, and the reason in words."""
    record = read_record(store, key)
    if record is None:
        return StageState.MISSING, "it has not run"
    if record.state == "invalidated":
        return StageState.INVALIDATED, "it is to be done again"
    if record.state == "failed":
        return StageState.FAILED, record.error or "it failed"
    if record.state != "completed":
        return StageState.INTERRUPTED, f"process {record.pid} on {record.host} began it and did not finish"
    for path in record.outputs:
        if not store.files.exists(path):
            return StageState.MISSING, f"its output {path} is gone"
    for path in sorted(set(record.inputs) | set(inputs)):
        if record.accepted_inputs.get(path) != inputs.get(path):
            return StageState.STALE, f"{path} is not what it was made from"
    if record.settings_digest != settings_digest:
        return StageState.STALE, "its settings have changed"
    return StageState.CURRENT, "done"


def stale_advice(run: str) -> str:
    return (
        f"Nothing is built on it. Do what is stale again with `rollmill resume {run} --stale rerun`, take it "
        f"as it is with `rollmill accept {run}`, or look at `rollmill status {run}` first."
    )


def digest_settings(settings: Any) -> str:
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class Stage:
    """A stage at work: `with` it, publish through it, and its record is written when the block ends."""

    def __init__(self, store: Store, key: StageKey, inputs: Mapping[str, str], settings_digest: str) -> None:
        self.store, self.key = store, key
        self.outputs: dict[str, str] = {}
        self.counts: dict[str, float] = {}
        self._clock = time.monotonic()
        self._record = StageRecord(
            **asdict(key),
            state="running",
            inputs=inputs,
            outputs={},
            settings_digest=settings_digest,
            code_version=code_version(),
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=datetime.now(UTC).isoformat(),
        )

    @property
    def inputs(self) -> Mapping[str, str]:
        """Paths that this stage reads, with their digests."""
        return self._record.inputs

    @property
    def inputs_digest(self) -> str:
        """Names what this stage reads: work staged for other inputs must not be taken for its own."""
        return digest_settings([dict(self._record.inputs), self._record.settings_digest])

    def publish_table(self, dataset: Dataset, table: pa.Table, **partitions: Any) -> None:
        path = self.store.publish_table(dataset, table, **partitions)
        self._note_output(path)

    def publish_folder(self, built: Path, relative: str) -> None:
        self.store.files.publish(built, relative)
        self._note_output(relative)

    def __enter__(self) -> Self:
        self._write(self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        done = replace(
            self._record,
            state="completed" if error is None else "failed",
            outputs=self.outputs,
            seconds=time.monotonic() - self._clock,
            error=None if error is None else f"{type(error).__name__}: {error}",
            counts=self.counts,
        )
        self._write(done)

    def _note_output(self, relative: str) -> None:
        digest = self.store.digest(relative)
        assert digest is not None, relative  # it was published a moment ago
        self.outputs[relative] = digest

    def _write(self, record: StageRecord) -> None:
        write_record(self.store, self.key, record)


class OnStale(StrEnum):
    """What becomes of a stage that was made from something else than what its inputs are now."""

    REFUSE = "refuse"
    RERUN = "rerun"


def begin_stage(
    store: Store,
    key: StageKey,
    *,
    inputs: Sequence[str],
    settings: Any,
    rerun: bool = False,
    on_stale: OnStale = OnStale.REFUSE,
) -> Stage | None:
    """The stage to work on, or None when it is already done from these very inputs.

    Args:
        inputs: paths in the store that it reads; all must be there.
        settings: JSON-like; whatever else decides the result.
        rerun: do it again even where it is done, or was done from other inputs.
        on_stale: whether to do it again where it was done from other inputs.

    Raises:
        StoreError: an input is missing, or the stage is stale and is not to be done again.
    """
    digests: dict[str, str] = {}
    for path in inputs:
        digest = store.digest(path)
        if digest is None:
            raise StoreError(f"{key} reads {path}, which is not in {store.root}. Run the stage before it.")
        digests[path] = digest
    settings_digest = digest_settings(settings)
    state, reason = stage_state(store, key, digests, settings_digest)
    if state is StageState.CURRENT and not rerun:
        return None
    if state is StageState.STALE and not rerun and on_stale is OnStale.REFUSE:
        raise StoreError(f"{key} is stale: {reason}. {stale_advice(key.run)}")
    return Stage(store, key, digests, settings_digest)
