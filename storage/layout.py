"""Where everything lies in a store. Names are checked here, once: no name leads out of the store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from storage.errors import StoreError
from storage.schemas import Dataset

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
SPLITS = ("train", "validation")


def check_name(kind: str, name: str) -> str:
    """Return `name`, or raise StoreError: run and scorer names become folders and SQL literals."""
    if not NAME.fullmatch(name):
        raise StoreError(
            f"{kind} name {name!r} cannot be used: a name begins with a letter and goes on with letters, "
            "digits, '.', '_' or '-', 100 characters at most."
        )
    return name


def partition_folder(dataset: Dataset, **partitions: Any) -> str:
    """Hive-style folder of one file, e.g. `trajectories/run=demo/step=000003/split=train`."""
    if set(partitions) != set(dataset.partitions):
        raise ValueError(f"{dataset.name} is partitioned by {dataset.partitions}, got {tuple(partitions)}")
    return "/".join([dataset.name, *(_part(name, partitions[name]) for name in dataset.partitions)])


def data_file(dataset: Dataset, **partitions: Any) -> str:
    return f"{partition_folder(dataset, **partitions)}/data.parquet"


def adapter_folder(run: str, step: int) -> str:
    return f"adapters/{_part('run', run)}/{_part('step', step)}"


def run_file(run: str) -> str:
    return f"runs/{_part('run', run)}/run.json"


@dataclass(frozen=True)
class StageKey:
    """Which piece of work: a stage of a run, and of a step, split and scorer where it has them."""

    run: str
    stage: str
    step: int | None = None
    split: str | None = None
    scorer: str | None = None

    @property
    def folder(self) -> str:
        """Run and step as partitions: where this stage's record and its staging area lie."""
        parts = [_part("run", self.run)]
        if self.step is not None:
            parts.append(_part("step", self.step))
        return "/".join(parts)

    @property
    def record_file(self) -> str:
        name = ".".join(part for part in (self.stage, self.split, self.scorer) if part is not None)
        return f"stages/{self.folder}/{name}.json"

    def __str__(self) -> str:
        details = [f"step {self.step}" if self.step is not None else None, self.split, self.scorer]
        return f"{self.stage} of {self.run} ({', '.join(d for d in details if d)})"


def _part(name: str, value: Any) -> str:
    if name == "step":
        if not isinstance(value, int) or value < 0:
            raise StoreError(f"step must be a whole number from 0 on, got {value!r}.")
        return f"step={value:06d}"
    if name == "split" and value not in SPLITS:
        raise StoreError(f"split must be one of {', '.join(SPLITS)}, got {value!r}.")
    return f"{name}={check_name(name, value)}"
