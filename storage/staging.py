"""Rollouts on their way: each finished group is a file of its own, until its step is published.

A group that is staged survives a crash. The area is named after what the stage reads, so that groups which
an earlier adapter or configuration sampled are never taken for this one's.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.layout import StageKey
from storage.schemas import TRAJECTORIES
from storage.stages import Stage
from storage.store import Store, write_parquet


class StagedGroups:
    def __init__(self, stage: Stage) -> None:
        self._files = stage.store.files
        self._folder = f"{_area(stage.key)}/{stage.inputs_digest}"

    def add(self, group_id: str, trajectories: pa.Table) -> None:
        """Keep a finished group; it is on the disk when this returns."""
        built = self._files.scratch(self._folder.removeprefix("_staging/"), ".parquet")
        write_parquet(trajectories.cast(TRAJECTORIES.schema), built)
        self._files.publish(built, self._file(group_id))

    def read(self, group_id: str) -> pa.Table | None:
        """A group that is staged, or None when it is not; a broken file is removed and counts as missing."""
        path = self._files.path(self._file(group_id))
        try:
            return pq.ParquetFile(path).read()
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError):
            path.unlink()
            return None

    def drop(self, group_id: str) -> None:
        """Forget a group, so that a rerun plays it again."""
        self._files.remove(self._file(group_id))

    def _file(self, group_id: str) -> str:
        return f"{self._folder}/group-{group_id}.parquet"

    @property
    def folder(self) -> Path:
        return self._files.path(self._folder)


def clear_staged(store: Store, key: StageKey) -> None:
    """Remove everything staged for a step and split; call it whenever the stage is found to be done."""
    if store.files.exists(_area(key)):
        store.files.remove(_area(key))


def _area(key: StageKey) -> str:
    return f"_staging/{key.folder}/{key.split}"
