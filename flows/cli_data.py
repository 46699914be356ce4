"""`rollmill sql, ask, runs, status`: questions to a store, answered in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.output import Format, print_table, visible, write_rows
from storage.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

app = typer.Typer()

StoreOption = Annotated[
    Path, typer.Option("--store", envvar="ROLLMILL_STORE", help="Folder of the store.", show_default=True)
]
StoresOption = Annotated[
    list[Path] | None,
    typer.Option("--store", envvar="ROLLMILL_STORE", help="Folder of a store; may be given several times."),
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How rows are written.")]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="File to write to.")]
DEFAULT_STORE = Path(".rollmill/store")


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A query, or `shell` for a prompt.")],
    store: StoresOption = None,
    format_: FormatOption = Format.TABLE,
    out: OutOption = None,
) -> None:
    """Query trajectories, turns, tokens, rewards and the other views. Nothing can be written."""
    with _connect(store or [DEFAULT_STORE]) as connection:
        if query.strip().lower() == "shell":
            from flows.sql_shell import run_shell

            run_shell(connection)
        else:
            write_rows(run_query(connection, query), format_, out)


@app.command()
def ask(
    name: Annotated[
        str | None, typer.Argument(help="A shipped question; without one they are listed.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    step: Annotated[int | None, typer.Option(help="Only this step.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another parameter of the question."),
    ] = None,
    store: StoresOption = None,
    format_: FormatOption = Format.TABLE,
    out: OutOption = None,
    show_sql: Annotated[bool, typer.Option("--sql", help="Print the question's SQL instead.")] = False,
) -> None:
    """Answer a shipped question, or list them."""
    import pyarrow as pa

    from storage.questions import ask as answer
    from storage.questions import find_question, list_questions

    if name is None:
        questions = [{"question": q.name, "title": q.title} for q in list_questions()]
        write_rows(pa.Table.from_pylist(questions), format_, out)
        return
    question = find_question(name)
    if show_sql:
        typer.echo(question.sql)
        return
    parameters: dict[str, Any] = dict(_parameter(text) for text in set_ or [])
    parameters |= {key: value for key, value in {"run": run, "step": step}.items() if value is not None}
    with _connect(store or [DEFAULT_STORE]) as connection:
        write_rows(answer(connection, question, **parameters), format_, out, title=question.title)
    if format_ is Format.TABLE and out is None and question.how_to_read:
        typer.echo(question.how_to_read)


@app.command()
def runs(store: StoresOption = None, format_: FormatOption = Format.TABLE, out: OutOption = None) -> None:
    """List the runs of a store."""
    with _connect(store or [DEFAULT_STORE]) as connection:
        rows = run_query(
            connection,
            """
            SELECT run, created_at, scorer, parent_run, parent_step, last_adapter, store
            FROM runs
            LEFT JOIN (SELECT store, run, max(step) AS last_adapter FROM adapters GROUP BY ALL)
                USING (store, run)
            ORDER BY created_at
            """,
        )
        write_rows(rows, format_, out)


@app.command()
def status(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    all_: Annotated[bool, typer.Option("--all", help="Show finished stages of all steps, too.")] = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show where each stage of a run stands: current, stale, failed, interrupted, and why."""
    import pyarrow as pa

    from storage.stages import StageState
    from storage.status import run_status
    from storage.store import Store

    found = run_status(Store.existing(store), run)
    last = max((status.key.step for status in found if status.key.step is not None), default=0)
    shown = [
        {
            "stage": item.key.stage,
            "step": item.key.step,
            "split": item.key.split,
            "scorer": item.key.scorer,
            "state": str(item.state),
            "seconds": item.record.seconds,
        }
        for item in found
        if all_ or item.state is not StageState.CURRENT or item.key.step in (None, last, last - 1)
    ]
    hidden = len(found) - len(shown)
    print_table(
        pa.Table.from_pylist(shown), f"Run {run}" + (f" ({hidden} finished not shown)" if hidden else "")
    )
    for item in found:
        if item.state is not StageState.CURRENT:
            typer.echo(visible(f"{item.state}: {item.key}: {item.reason}"))


def run_query(connection: DuckDBPyConnection, query: str) -> pa.Table:
    """Rows of a query. Raises StoreError with DuckDB's words where it is wrong."""
    import duckdb
    import pyarrow as pa

    try:
        relation = connection.sql(query)
        return pa.table({}) if relation is None else relation.to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(f"The query failed: {error}") from error


def _connect(stores: list[Path]) -> DuckDBPyConnection:
    from storage.catalog import connect
    from storage.store import Store

    return connect(*(Store.existing(store).root for store in stores))


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"--set takes NAME=VALUE, got {text!r}")
    return name, int(value) if value.lstrip("-").isdigit() else value
