"""Scenarios from tables: Parquet files, and data sets that `datasets` saved to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from storage.codec import to_json
from storage.errors import ScenarioError
from storage.records import Scenario

IDS = ("scenario_id", "id")


def load_table_scenarios(path: Path) -> dict[str, Scenario]:
    """Scenarios by their places (`path, row N`), of a Parquet file or a folder of Arrow or Parquet files.

    With the columns `scenario_id` and `payload` (a struct or JSON text, and so `metadata`), a row is a
    scenario as in JSONL. Any other row is a payload as a whole; `id` is its id, or the path's name and its
    number where there is none.

    Raises:
        ScenarioError: nothing there can be read, or a row is wrong; it is named.
    """
    rows = _rows(path)
    ready = bool(rows) and {"scenario_id", "payload"} <= rows[0].keys()
    return {
        f"{path}, row {number}": _ready(row, f"{path}, row {number}")
        if ready
        else _whole(row, f"{path}, row {number}", f"{path.stem}-{number}")
        for number, row in enumerate(rows)
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    files = sorted([*path.glob("*.arrow"), *path.glob("*.parquet")]) if path.is_dir() else [path]
    if not files:
        raise ScenarioError(
            f"{path} holds no .arrow or .parquet file. Name the folder of one split, e.g. {path / 'train'}."
        )
    try:
        return [row for file in files for row in _read(file).to_pylist()]
    except (OSError, pa.ArrowException) as error:
        raise ScenarioError(f"Scenarios of {path} cannot be read: {error}") from error


def _read(file: Path) -> pa.Table:
    if file.suffix == ".arrow":  # `save_to_disk` writes the stream format
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_stream(source).read_all()
    return pq.read_table(file)


def _ready(row: dict[str, Any], place: str) -> Scenario:
    fields: list[dict[str, Any]] = []
    for name in ("payload", "metadata"):
        value = row.get(name)
        try:
            value = json.loads(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ScenarioError(f"{place}: {name} is text that is not JSON: {error}.") from error
        fields.append({} if value is None else value)
    identity = row["scenario_id"]
    if not isinstance(identity, str) or not identity or not all(isinstance(f, dict) for f in fields):
        raise ScenarioError(
            f"{place}: scenario_id is text, payload and metadata are objects, or JSON of them."
        )
    return _storable(Scenario(identity, *fields), place)


def _whole(row: dict[str, Any], place: str, fallback: str) -> Scenario:
    identity = next((str(row[name]) for name in IDS if row.get(name) is not None), fallback)
    return _storable(Scenario(identity, row), place)


def _storable(scenario: Scenario, place: str) -> Scenario:
    try:
        to_json(scenario.payload)
        to_json(scenario.metadata)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{place} cannot be kept as JSON: {error}. Leave such columns out.") from error
    return scenario
