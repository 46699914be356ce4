"""SQL over stores: one DuckDB connection with a view for each thing that is stored.

Below the views lie the relations of the schema `files`, one for each dataset, over a glob of its files. They
name their columns and types beforehand, so a store without such files gives an empty relation, a file of an
older schema gives null for what it lacks, and a connection sees files that appear after it was made.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from storage.errors import StoreError
from storage.read_only import PROTOCOL, ReadOnlyStores
from storage.records import FAILURES, StopReason
from storage.schemas import DATASETS, Dataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VIEW_FILES = Path(__file__).parent / "views"

# In the order in which they build on each other.
VIEWS = (
    "runs",
    "adapters",
    "stages",
    "scenarios",
    "trajectories",
    "rollouts",
    "messages",
    "turns",
    "token_stats",
    "tokens",
    "scores",
    "rewards",
    "groups",
    "judge_calls",
    "updates",
    "reward_metrics",
    "rollout_metrics",
    "sampling_metrics",
    "update_metrics",
    "stage_metrics",
    "metrics",
)

PARTITION_TYPES = {"run": "VARCHAR", "step": "INTEGER", "split": "VARCHAR", "scorer": "VARCHAR"}

# Records kept as JSON: where they lie, and their columns.
JSON_FILES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "runs": (
        ("runs/run=*/run.json",),
        {
            "run": "VARCHAR",
            "created_at": "TIMESTAMPTZ",
            "code_version": "VARCHAR",
            "scorer": "VARCHAR",
            "parent": "STRUCT(run VARCHAR, step INTEGER, rollouts VARCHAR)",
            "mlflow_run_id": "VARCHAR",
            "config": "JSON",
        },
    ),
    "adapters": (
        ("adapters/run=*/step=*/manifest.json",),
        {
            "run": "VARCHAR",
            "step": "INTEGER",
            "parent": "INTEGER",
            "parent_run": "VARCHAR",
            "base": "VARCHAR",
            "created_at": "TIMESTAMPTZ",
            "code_version": "VARCHAR",
            "config_digest": "VARCHAR",
            "inputs": "MAP(VARCHAR, VARCHAR)",
            "files": "MAP(VARCHAR, VARCHAR)",
        },
    ),
    "stages": (
        ("stages/run=*/*.json", "stages/run=*/step=*/*.json"),
        {
            "run": "VARCHAR",
            "stage": "VARCHAR",
            "step": "INTEGER",
            "split": "VARCHAR",
            "scorer": "VARCHAR",
            "state": "VARCHAR",
            "inputs": "MAP(VARCHAR, VARCHAR)",
            "outputs": "MAP(VARCHAR, VARCHAR)",
            "settings_digest": "VARCHAR",
            "code_version": "VARCHAR",
            "host": "VARCHAR",
            "pid": "BIGINT",
            "started_at": "TIMESTAMPTZ",
            "seconds": "DOUBLE",
            "error": "VARCHAR",
            "counts": "MAP(VARCHAR, DOUBLE)",
            "accepted": "MAP(VARCHAR, VARCHAR)",
        },
    ),
}


def connect(*stores: str | Path, step: int | None = None, views: Sequence[str] = VIEWS) -> DuckDBPyConnection:
    """An in-memory DuckDB connection with the views over `stores`, told apart by their column `store`.

    It is closed: it reads files of these stores alone, writes none, loads no extension, and its configuration
    is locked. Tables and views can be made in its memory.

    Args:
        step: show the files of this step alone, beside those that belong to no step, so that looking at one
            step costs the same however many a run has.
        views: which of the views to make, each after those that it is made from; all take half a second.

    Raises:
        StoreError: no store is given.
    """
    import duckdb

    if not stores:
        raise StoreError("No store to connect to was named.")
    roots = [Path(store).expanduser().absolute() for store in stores]
    connection = duckdb.connect()
    connection.register_filesystem(ReadOnlyStores(roots))
    connection.execute("SET TimeZone = 'UTC'")
    _create_macros(connection)
    connection.execute("CREATE SCHEMA files")
    for dataset in DATASETS.values():
        connection.execute(f"CREATE VIEW files.{dataset.name} AS {_parquet_relation(dataset, roots, step)}")
    for name in JSON_FILES:
        connection.execute(f"CREATE VIEW files.{name} AS {_json_relation(name, roots, step)}")
    for name in views:
        connection.execute(f"CREATE VIEW {name} AS {view_sql(name)}")
        connection.execute(f"COMMENT ON VIEW {name} IS {literal(view_comment(name))}")
    _close(connection, len(roots))
    return connection


def view_sql(name: str) -> str:
    return (VIEW_FILES / f"{name}.sql").read_text(encoding="utf-8")


def view_comment(name: str) -> str:
    """What a row of the view is: the comment that its file begins with."""
    comment = []
    for line in view_sql(name).splitlines():
        if not line.startswith("--"):
            break
        comment.append(line.removeprefix("--").strip())
    return " ".join(comment)


def literal(text: str) -> str:
    """`text` as a SQL string."""
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(type_: pa.DataType) -> str:
    """DuckDB's name of an Arrow type. Raises ValueError for a type that no dataset uses."""
    if pa.types.is_struct(type_):
        return "STRUCT(" + ", ".join(f'"{f.name}" {duckdb_type(f.type)}' for f in type_) + ")"
    if pa.types.is_map(type_):
        return f"MAP({duckdb_type(type_.key_type)}, {duckdb_type(type_.item_type)})"
    if pa.types.is_list(type_):
        return f"{duckdb_type(type_.value_type)}[]"
    names = {
        pa.string(): "VARCHAR",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.bool_(): "BOOLEAN",
        pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    }
    if type_ not in names:
        raise ValueError(f"no DuckDB type is known for {type_}")
    return names[type_]


def _create_macros(connection: DuckDBPyConnection) -> None:
    """What SQL must take from `records.py`, so that it stands in one place."""
    failures = ", ".join(literal(reason) for reason in sorted(FAILURES))
    reasons = ", ".join(literal(reason) for reason in StopReason)
    connection.execute(f"CREATE MACRO is_failure(stop_reason) AS stop_reason IN ({failures})")
    connection.execute(f"CREATE MACRO stop_reason_names() AS [{reasons}]")
    # Equal rewards, as advantages take them: see tasks/grpo/advantages.py.
    connection.execute(
        "CREATE MACRO rewards_are_equal(low, high) AS high - low <= 1e-6 * greatest(1.0, abs(low), abs(high))"
    )


def _parquet_relation(dataset: Dataset, roots: list[Path], step: int | None) -> str:
    columns = {field.name: duckdb_type(field.type) for field in dataset.columns}
    partitions = {name: PARTITION_TYPES[name] for name in dataset.partitions}
    schema = ", ".join(
        f"{literal(name)}: {{name: {literal(name)}, type: {literal(type_)}, default_value: NULL}}"
        for name, type_ in columns.items()
    )
    files = "/".join([dataset.name, *(f"{name}=*" for name in partitions)])
    reads = [
        f"SELECT {literal(str(root))} AS store, * FROM read_parquet("
        f"{_glob(number, f'{files}/data.parquet', step)}, "
        f"allow_empty = true, hive_partitioning = true, hive_types = {_struct(partitions)}, "
        f"schema = MAP {{{schema}}})"
        for number, root in enumerate(roots)
    ]
    return _typed_union({"store": "VARCHAR", **partitions, **columns}, reads)


def _json_relation(name: str, roots: list[Path], step: int | None) -> str:
    globs, columns = JSON_FILES[name]
    reads = [
        f"SELECT {literal(str(root))} AS store, * FROM read_json({_glob(number, glob, step)}, "
        "allow_empty = true, format = 'unstructured', hive_partitioning = true, "
        f"columns = {_struct(columns)}, hive_types = "
        + _struct({part: PARTITION_TYPES[part] for part in re.findall(r"(\w+)=\*", glob)})
        + ")"
        for number, root in enumerate(roots)
        for glob in globs
    ]
    return _typed_union({"store": "VARCHAR", **columns}, reads)


def _typed_union(columns: dict[str, str], reads: list[str]) -> str:
    """All `reads` by name, behind an empty relation that gives the columns even where no read has any."""
    empty = ", ".join(f'NULL::{type_} AS "{name}"' for name, type_ in columns.items())
    names = ", ".join(f'"{name}"' for name in columns)
    return f"SELECT {names} FROM ({' UNION ALL BY NAME '.join([f'SELECT {empty} WHERE false', *reads])})"


def _struct(types: dict[str, str]) -> str:
    return "{" + ", ".join(f"{literal(name)}: {literal(type_)}" for name, type_ in types.items()) + "}"


def _glob(number: int, pattern: str, step: int | None) -> str:
    if step is not None:
        pattern = pattern.replace("step=*", f"step={step:06d}")
    return literal(f"{PROTOCOL}://{number}/{pattern}")


def _close(connection: DuckDBPyConnection, stores: int) -> None:
    """Take away whatever reaches outside the stores, for good."""
    folders = ", ".join(literal(f"{PROTOCOL}://{number}/") for number in range(stores))
    # Made when a query spills, and removed with the connection.
    spill = Path(tempfile.gettempdir()) / f"rollmill-sql-{uuid.uuid4().hex}"
    for setting, value in {
        # It goes by a file's time of change, which is too coarse for a file that was replaced a moment ago.
        "enable_external_file_cache": "false",
        "temp_directory": literal(str(spill)),
        "allowed_directories": f"[{folders}]",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "allow_extension_repositories": "'forbidden'",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }.items():
        connection.execute(f"SET {setting} = {value}")
