"""A prompt for SQL with history and completion. It needs nothing but Python's readline."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flows.output import print_table, visible
from storage.errors import StoreError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HISTORY = Path("~/.rollmill_sql_history")
HELP = """Statements end with a semicolon. .views lists the views, .quit ends."""
ROWS = 100  # shown of an answer


def run_shell(connection: DuckDBPyConnection) -> None:
    """Read statements and print their answers until the end of input."""
    from flows.cli_data import run_query

    _prepare_readline(connection)
    print(HELP)
    statement = ""
    while True:
        try:
            line = input("   ...> " if statement else "rollmill> ")
        except EOFError:
            print()
            break
        except KeyboardInterrupt:
            print()
            statement = ""
            continue
        if not statement and line.strip() in (".quit", ".exit"):
            break
        if not statement and line.strip() == ".views":
            line = (
                "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal AND schema_name = 'main';"
            )
        statement += f"{line}\n"
        if line.rstrip().endswith(";"):
            try:
                rows = run_query(connection, statement)
                print_table(
                    rows.slice(0, ROWS), f"first {ROWS} of {rows.num_rows}" if rows.num_rows > ROWS else None
                )
            except StoreError as error:
                print(visible(str(error)), file=sys.stderr)
            statement = ""


def _prepare_readline(connection: DuckDBPyConnection) -> None:
    try:
        import atexit
        import readline
    except ImportError:  # Windows: a plain prompt
        return
    history = HISTORY.expanduser()
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1000)

    def save() -> None:
        with suppress(OSError):
            readline.write_history_file(history)

    atexit.register(save)
    names = completions(connection)
    readline.set_completer_delims(" \t\n(),.;=<>")
    readline.set_completer(
        lambda text, state: next(iter([n for n in names if n.lower().startswith(text.lower())][state:]), None)
    )
    readline.parse_and_bind("tab: complete")


def completions(connection: DuckDBPyConnection) -> list[str]:
    """Names of views and columns, and keywords."""
    rows = connection.execute(
        """
        SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'
        UNION
        SELECT column_name FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main'
        UNION
        SELECT upper(keyword_name) FROM duckdb_keywords() WHERE keyword_category = 'reserved'
        """
    ).fetchall()
    return sorted(name for (name,) in rows)
