"""A store: one published Parquet file for each output of a stage, adapters as folders, records as JSON.

    <store>/runs/run=R/run.json                   the run and its configuration
    <store>/scenarios|trajectories|scores|…       data, see schemas.py
    <store>/adapters/run=R/step=000004/           adapter, optimiser state, manifest.json
    <store>/stages/run=R/step=000003/NAME.json    what was done, from which inputs, see stages.py
    <store>/_staging/ _replaced/ _leases/         work in progress; what a rerun replaced; who writes

A stage builds its output under `_staging` and renames it into place, so readers need neither Rollmill nor a
lock. A reader that opens a file more than once in a query, as DuckDB does, may meet two files while a rerun
replaces one; `catalog.connect` pins what it listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage import layout
from storage.errors import StoreError
from storage.files import LocalFiles, digest_tree
from storage.lease import hold_lease
from storage.schemas import Dataset

ROW_GROUP = 10_000  # rows; about 20 MB of trajectories, so that a question on some columns reads little


class Store:
    """Reads and publishes what a run consists of. Cheap to make; holds no handles."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()
        self.files = LocalFiles(self.root)

    @classmethod
    def existing(cls, root: str | Path) -> Store:
        """The store at `root`, or StoreError when there is none."""
        store = cls(root)
        if not store.files.exists("runs"):
            raise StoreError(f"There is no Rollmill store at {store.root}: it has no runs/ folder.")
        return store

    # Runs

    def run_names(self) -> list[str]:
        folders = (self.root / "runs").glob("run=*/run.json")
        return sorted(folder.parent.name.removeprefix("run=") for folder in folders)

    def read_run(self, run: str) -> dict[str, Any] | None:
        text = self.files.read_text(layout.run_file(run))
        return None if text is None else json.loads(text)

    def existing_run(self, run: str) -> dict[str, Any]:
        """What `run.json` says, or StoreError that names the runs there are."""
        found = self.read_run(run)
        if found is None:
            known = ", ".join(self.run_names()) or "none"
            raise StoreError(f"There is no run {run!r} in {self.root}. Its runs: {known}.")
        return found

    def write_run(self, run: str, description: dict[str, Any]) -> None:
        self.files.write_text(layout.run_file(run), json.dumps(description, indent=2) + "\n")

    @contextmanager
    def writer(self, run: str) -> Iterator[None]:
        """Hold the run's lease: one writer a run, and a second one is told who has it."""
        layout.check_name("run", run)
        with hold_lease(self.files.path(f"_leases/run={run}.lock"), f"run {run}"):
            yield

    # Data

    def has(self, dataset: Dataset, **partitions: Any) -> bool:
        return self.files.exists(layout.data_file(dataset, **partitions))

    def read(self, dataset: Dataset, *, columns: list[str] | None = None, **partitions: Any) -> pa.Table:
        """One published file as an Arrow table. Raises StoreError when it is missing or broken."""
        relative = layout.data_file(dataset, **partitions)
        path = self.files.path(relative)
        try:
            # A single file, not a dataset: partition columns would be added to it otherwise.
            return pq.ParquetFile(path).read(columns=columns)
        except FileNotFoundError:
            raise StoreError(
                f"{relative} is not in {self.root}: the stage that publishes it has not run."
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise StoreError(
                f"{relative} in {self.root} cannot be read ({error}). Rerun the stage that publishes it, "
                "or restore the file from a backup."
            ) from error

    def publish_table(self, dataset: Dataset, table: pa.Table, **partitions: Any) -> str:
        """Publish `table` as the file of these partitions; returns its path in the store."""
        relative = layout.data_file(dataset, **partitions)
        _refuse_double_keys(dataset, table, relative)
        built = self.files.scratch("tables", ".parquet")
        write_parquet(table.cast(dataset.schema), built)
        self.files.publish(built, relative)
        return relative

    # Adapters

    def adapter(self, run: str, step: int) -> Path:
        """Folder of a committed adapter. Raises StoreError when there is none."""
        folder = self.files.path(layout.adapter_folder(run, step))
        if not (folder / "manifest.json").exists():
            raise StoreError(f"Run {run} has no adapter of step {step} in {self.root}.")
        return folder

    def read_manifest(self, run: str, step: int) -> dict[str, Any]:
        return json.loads((self.adapter(run, step) / "manifest.json").read_text(encoding="utf-8"))

    def adapter_steps(self, run: str) -> list[int]:
        """Steps of a run that have a committed adapter, in order."""
        layout.check_name("run", run)
        manifests = (self.root / "adapters" / f"run={run}").glob("step=*/manifest.json")
        return sorted(int(manifest.parent.name.removeprefix("step=")) for manifest in manifests)

    def digest(self, relative: str) -> str | None:
        """Digest of a published file or folder; None when nothing is there."""
        path = self.files.path(relative)
        return digest_tree(path) if path.exists() else None


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd", row_group_size=ROW_GROUP)


def _refuse_double_keys(dataset: Dataset, table: pa.Table, relative: str) -> None:
    keys = table.group_by(list(dataset.key)).aggregate([([], "count_all")])
    if keys.num_rows != table.num_rows:
        double = keys.filter(pa.compute.greater(keys["count_all"], 1)).slice(0, 3).to_pylist()
        raise StoreError(f"{relative} would hold rows with the same key: {double}. Nothing was published.")
