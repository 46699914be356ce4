"""How rows of a store reach the terminal or a file: as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a cell that begins so for a formula
PIPE_WIDTH = 200  # columns of a table that goes to a file or a pipe
CELL = 80  # characters of a cell that a table in the terminal shows


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def visible(text: str) -> str:
    """`text` with terminal escapes, other control characters and invisible direction marks spelled out.

    What a model or a tool wrote must not move the cursor, set the window's title, or hide a part of itself.
    """
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def write_rows(rows: pa.Table, format_: Format, out: Path | None, *, title: str | None = None) -> None:
    """Write `rows` to `out`, or to standard output.

    Raises:
        StoreError: Parquet without a file, or a file that cannot be written.
    """
    if format_ is Format.PARQUET:
        if out is None:
            raise StoreError("Parquet goes to a file: name one with --out.")
        import pyarrow.parquet as pq

        _to_file(out, lambda: pq.write_table(rows, out))
    elif format_ is Format.TABLE and out is None:
        print_table(rows, title)
    else:
        text = {Format.CSV: to_csv, Format.JSON: to_json, Format.TABLE: to_text}[format_](rows)
        if out is None:
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
        else:
            _to_file(out, lambda: out.write_text(text, encoding="utf-8"))


def print_table(rows: pa.Table, title: str | None = None) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(rows_table(rows, title))


def to_text(rows: pa.Table) -> str:
    from rich.console import Console

    console = Console(width=PIPE_WIDTH, color_system=None)
    with console.capture() as capture:
        console.print(rows_table(rows))
    return capture.get()


def to_csv(rows: pa.Table) -> str:
    """CSV with a header. Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_plain_cell(name) for name in rows.column_names])
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        writer.writerow([_csv_cell(value) for value in row])
    return buffer.getvalue()


def to_json(rows: pa.Table) -> str:
    """A JSON array of objects, one a line. NaN and infinities become null, as JSON has none."""
    lines = ",\n".join(
        json.dumps(_jsonable(row), ensure_ascii=False, allow_nan=False)
        for row in rows.to_pylist(maps_as_pydicts="strict")
    )
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def cell(value: Any) -> str:
    """A value as a table in the terminal shows it: short, and safe to print."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = visible("" if value is None else str(value)).replace("\n", "⏎").replace("\t", " ")
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def rows_table(rows: pa.Table, title: str | None = None) -> Any:
    """A rich table of Arrow rows, with cells that are short and safe to print."""
    from rich.table import Table
    from rich.text import Text

    numeric = {"int", "uint", "float", "double", "decimal", "halffloat"}
    table = Table(title=title, title_justify="left", caption=f"{rows.num_rows} rows", caption_justify="left")
    for field in rows.schema:
        right = str(field.type).rstrip("0123456789") in numeric
        table.add_column(Text(visible(field.name)), justify="right" if right else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return _plain_cell(value)
    if isinstance(value, list | dict | tuple):
        return _plain_cell(json.dumps(_jsonable(value), ensure_ascii=False))
    return value


def _plain_cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _to_file(out: Path, write: Callable[[], Any]) -> None:
    try:
        write()
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error}") from error
