"""What a finished run leaves where people look: a table and a figure in Prefect, the figure in MLflow."""

from __future__ import annotations

import re
from typing import Any

from prefect.artifacts import acreate_image_artifact, acreate_table_artifact

from flows.plots import data_url, reward_figure
from storage.catalog import connect
from storage.tracking import Tracker
from tasks.run import Run

TABLE = """
    PIVOT (
        SELECT step, name, value FROM metrics
        WHERE run = $run AND name IN (
            'reward', 'val/reward', 'frac_reward_zero_std', 'completions/mean_length', 'entropy', 'grad_norm'
        )
    )
    ON name IN (
        'reward', 'val/reward', 'frac_reward_zero_std', 'completions/mean_length', 'entropy', 'grad_norm'
    )
    USING first(value)
    ORDER BY step
"""


async def publish_report(run: Run, tracker: Tracker) -> None:
    """Publish the run's metrics by step as a table, and its rewards as a figure."""
    with connect(run.store.root) as connection:
        rows = connection.sql(TABLE, params={"run": run.name}).to_arrow_table().to_pylist()
    figure = reward_figure(run.name, _column(rows, "reward"), _column(rows, "val/reward"))
    tracker.log_figure(figure, "rewards.png")
    key = artifact_key(run.name)
    description = f"Run {run.name} by step; every number from `rollmill sql`'s view `metrics`"
    await acreate_table_artifact(key=f"{key}-metrics", table=rows, description=description)
    await acreate_image_artifact(
        key=f"{key}-rewards", image_url=data_url(figure), description=f"Rewards of run {run.name}"
    )


def _column(rows: list[dict[str, Any]], name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in rows if row.get(name) is not None}


def artifact_key(run: str) -> str:
    """`run` in the small letters, digits and dashes that Prefect allows."""
    return re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
