"""A run as one HTML file to send to a colleague: figures, numbers, episodes, lineage, configuration.

Everything in it is computed from the store; nothing is loaded from elsewhere when it is opened. Whatever a
model, a tool or a config said is escaped by the template engine and can run nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.output import cell, visible
from flows.plots import data_url, metric_figure, reward_figure
from storage.catalog import connect
from storage.explain import explain_adapter
from storage.lookup import Found, find_trajectory
from storage.questions import ask, find_question
from storage.store import Store
from storage.tracking import flatten

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TEMPLATES = Path(__file__).parent / "templates"
FIGURES = ("completions/mean_length", "frac_reward_zero_std", "entropy", "grad_norm")
QUESTIONS = ("reward_by_step", "stop_reasons", "stage_costs")
GROUPS_SHOWN = 3

METRICS = "SELECT step, name, value FROM metrics WHERE run = $run AND value IS NOT NULL ORDER BY step"
# Of some groups of the last step, the best and the worst episode: what the advantage pulled apart.
EPISODES = """
    WITH last AS (
        SELECT rewards.*, dense_rank() OVER (ORDER BY group_std DESC NULLS LAST, group_id) AS place
        FROM rewards
        JOIN runs USING (store, run)
        WHERE run = $run AND split = 'train' AND rewards.scorer = runs.scorer
            AND step = (SELECT max(step) FROM rewards WHERE run = $run AND split = 'train')
    )
    SELECT arg_max(trajectory_id, reward), arg_min(trajectory_id, reward)
    FROM last
    WHERE reward IS NOT NULL AND place <= $groups
    GROUP BY place
    ORDER BY place
"""


@dataclass(frozen=True)
class Section:
    """A table of the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_report(store: Store, run: str, out: Path) -> None:
    """Write the report of a run to `out`.

    Raises:
        StoreError: there is no such run.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    description = store.existing_run(run)
    with connect(store.root) as connection:
        metrics = _metrics(connection, run)
        tables = [_question(connection, name, run) for name in QUESTIONS]
        pairs = connection.execute(EPISODES, {"run": run, "groups": GROUPS_SHOWN}).fetchall()
    steps = store.adapter_steps(run)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["visible"] = visible
    html = environment.get_template("report.html.jinja").render(
        run=run,
        store=str(store.root),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        description=description,
        validation=sorted(metrics.get("val/reward", {}).items()),
        figures=_figures(run, metrics),
        tables=tables,
        groups=[[_episode(store, best), _episode(store, worst)] for best, worst in pairs],
        lineage=explain_adapter(store, run, steps[-1]) if steps else None,
        settings=flatten(description["config"]),
    )
    out.write_text(html, encoding="utf-8")


def _metrics(connection: DuckDBPyConnection, run: str) -> dict[str, dict[int, float]]:
    """Values by name and step."""
    found: dict[str, dict[int, float]] = {}
    for step, name, value in connection.execute(METRICS, {"run": run}).fetchall():
        found.setdefault(name, {})[step] = value
    return found


def _figures(run: str, metrics: dict[str, dict[int, float]]) -> list[tuple[str, str]]:
    """Titles and pictures."""
    rewards = reward_figure(run, metrics.get("reward", {}), metrics.get("val/reward", {}))
    figures = [("Mean reward of training and validation by step", data_url(rewards))]
    for name in FIGURES:
        if name in metrics:
            figures.append((f"{name} by step", data_url(metric_figure(name, metrics[name]))))
    return figures


def _question(connection: DuckDBPyConnection, name: str, run: str) -> Section:
    question = find_question(name)
    rows = ask(connection, question, run=run)
    columns = [column for column in rows.column_names if column not in ("run", "store")]
    values = rows.select(columns).to_pylist()
    return Section(question.title, columns, [[cell(row[column]) for column in columns] for row in values])


def _episode(store: Store, trajectory_id: str) -> tuple[Found, dict[str, Any]]:
    """An episode with the reward by the run's own scorer."""
    found = find_trajectory(store, trajectory_id)
    return found, next(iter(found.rewards), {"reward": None, "advantage": None})
