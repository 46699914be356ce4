"""What a finished run shows: its table, three questions answered from its store, and what to do next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from flows.output import rows_table
from storage.catalog import connect
from storage.layout import adapter_folder
from storage.store import Store
from storage.tracking import mlflow_uri

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS_SHOWN = 10
HIDDEN = ("run", "scorer", "lowest", "highest", "trajectory_id")  # the same in every row, or long
QUESTIONS = ("reward_by_step", "stop_reasons", "logprob_differences")

OVERVIEW = """
    SELECT
        first(reward ORDER BY step), min(step), last(reward ORDER BY step), max(step)
    FROM (
        SELECT step, value AS reward FROM metrics WHERE run = $run AND name = 'val/reward'
    )
"""
ROLLOUTS = """
    SELECT
        count(*),
        count(*) FILTER (error IS NOT NULL),
        sum(len(list_filter(mask, lambda sampled: sampled)))
    FROM trajectories
    WHERE run = $run
"""
STAGES = """
    SELECT stage, count(*), sum(seconds), avg(seconds)
    FROM stages
    WHERE run = $run AND state = 'completed'
    GROUP BY stage
    ORDER BY min(started_at)
"""


def print_summary(console: Console, store: str, run: str) -> None:
    """Print the summary of `run`, with every number computed from the store."""
    found = Store.existing(store)
    with connect(found.root) as connection:
        console.print()
        console.print(_overview(connection, run))
        _print_questions(console, connection, run)
    _print_next_steps(console, found, run)


def _overview(connection: DuckDBPyConnection, run: str) -> Table:
    table = Table(title=f"Run {run}", title_justify="left", show_header=False)
    [(before, first, after, last)] = connection.execute(OVERVIEW, {"run": run}).fetchall()
    if before is not None:
        table.add_row(
            "validation reward", f"{before:.3f} (step {first}) → [bold]{after:.3f}[/bold] (step {last})"
        )
    stages = connection.execute(STAGES, {"run": run}).fetchall()
    collecting = sum(seconds for stage, _, seconds, _ in stages if stage == "collect_rollouts")
    [(rollouts, failed, tokens)] = connection.execute(ROLLOUTS, {"run": run}).fetchall()
    table.add_row("rollouts", f"{rollouts}, of which {failed} failed")
    table.add_row("sampled tokens", f"{tokens}, {tokens / collecting:.0f} a second while collecting")
    for stage, times, seconds, mean in stages:
        table.add_row(stage, f"{seconds:.1f} s in all, {mean:.1f} s each of {times}")
    return table


def _print_questions(console: Console, connection: DuckDBPyConnection, run: str) -> None:
    from storage.questions import ask, find_question

    for name in QUESTIONS:
        question = find_question(name)
        console.print(f"\n[bold]{question.title}[/bold]\n[dim]rollmill ask {name} --run {run}[/dim]")
        answer = ask(connection, question, run=run).slice(0, ROWS_SHOWN)
        shown = answer.drop_columns([name for name in HIDDEN if name in answer.column_names])
        console.print(rows_table(shown))


def _print_next_steps(console: Console, store: Store, run: str) -> None:
    step = store.adapter_steps(run)[-1]
    root = store.root
    metrics = mlflow_uri(store, store.existing_run(run)["config"]["tracking"]["mlflow_uri"])
    home = os.environ.get("PREFECT_HOME")
    prefect = f"{f'PREFECT_HOME={home} ' if home else ''}prefect server start"
    console.print(
        f"""
Store           {root}
Final adapter   {root / adapter_folder(run, step)}
Metrics         mlflow ui --backend-store-uri {metrics}
Flow runs       {prefect}
More SQL        rollmill sql "SELECT * FROM turns LIMIT 5" --store {root}
Serve it        rollmill serve {run} --step {step} --store {root}
""",
        soft_wrap=True,
        highlight=False,
    )
