"""What a finished run leaves where people look: a table and a figure in Prefect, the figure in MLflow."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

from prefect.artifacts import acreate_image_artifact, acreate_table_artifact

from storage.catalog import connect
from storage.tracking import Tracker
from tasks.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    figure = reward_figure(run.name, rows)
    tracker.log_figure(figure, "rewards.png")
    key = artifact_key(run.name)
    description = f"Run {run.name} by step; every number from `rollmill sql`'s view `metrics`"
    await acreate_table_artifact(key=f"{key}-metrics", table=rows, description=description)
    await acreate_image_artifact(
        key=f"{key}-rewards", image_url=_data_url(figure), description=f"Rewards of run {run.name}"
    )


def reward_figure(run: str, rows: list[dict[str, Any]]) -> Figure:
    """Rewards of training and validation over the steps."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, label, style in (("reward", "training", ".-"), ("val/reward", "validation", "o--")):
        points = [(row["step"], row[name]) for row in rows if row[name] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    axes.set(title=f"Run {run}", xlabel="step", ylabel="mean reward")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def artifact_key(run: str) -> str:
    """`run` in the small letters, digits and dashes that Prefect allows."""
    return re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")


def _data_url(figure: Figure) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=100)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
