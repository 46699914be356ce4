"""Prints docs/schema.md: `python -m storage.document_schemas > docs/schema.md`."""

from __future__ import annotations

import pyarrow as pa

from storage.catalog import VIEWS, view_comment
from storage.questions import list_questions
from storage.schemas import DATASETS, SCHEMA_VERSION, Dataset


def page() -> str:
    """The whole page."""
    views = "\n".join(f"| `{name}` | {view_comment(name)} |" for name in VIEWS)
    questions = "\n".join(f"| `{q.name}` | {q.title} | {', '.join(q.parameters)} |" for q in list_questions())
    return (
        f"# What is stored (schema version {SCHEMA_VERSION})\n\n"
        "Generated from `storage/schemas.py`, `storage/views/` and `storage/questions/` by "
        "`python -m storage.document_schemas`.\n\n"
        + "\n\n".join(_dataset(dataset) for dataset in DATASETS.values())
        + "\n\n## Views\n\n`rollmill sql` and `storage.catalog.connect(store)` have these views. The column "
        "`store` tells several stores apart.\n\n"
        f"| view | what a row is |\n|---|---|\n{views}\n\n"
        "## Questions\n\n`rollmill ask NAME`; `--run` and `--step` narrow it down where it takes them.\n\n"
        f"| name | question | parameters |\n|---|---|---|\n{questions}\n"
    )


def _dataset(dataset: Dataset) -> str:
    folder = "/".join([dataset.name, *(f"{p}=…" for p in dataset.partitions), "data.parquet"])
    rows = [line for column in dataset.columns for line in _rows(column, "")]
    table = "\n".join(["| column | type | null | meaning |", "|---|---|---|---|", *rows])
    key = ", ".join(dataset.key)
    return f"## {dataset.name}\n\n{dataset.doc} `{folder}`; a row is named by {key}.\n\n{table}"


def _rows(column: pa.Field, prefix: str) -> list[str]:
    """The row of a column, and of each field of the structs in it."""
    meaning = (column.metadata or {}).get(b"doc", b"").decode()
    null = "yes" if column.nullable and meaning else ""
    element = column.type.value_type if pa.types.is_list(column.type) else column.type
    name = f"{prefix}{column.name}"
    is_struct = pa.types.is_struct(element)
    shown = "list<struct>" if is_struct else str(column.type).replace("item: ", "").replace(" not null", "")
    rows = [f"| `{name}` | `{shown}` | {null} | {meaning} |"]
    if is_struct:
        for field in element:
            rows += _rows(field, f"{name}[].")
    return rows


if __name__ == "__main__":
    print(page(), end="")
