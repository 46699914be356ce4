"""Figures of a run, as the report, Prefect and MLflow show them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reward_figure(run: str, training: Mapping[int, float], validation: Mapping[int, float]) -> Figure:
    """Mean rewards by step."""
    figure, axes = _axes((5, 3))
    axes.plot(training.keys(), training.values(), ".-", label="training")
    axes.plot(validation.keys(), validation.values(), "o--", label="validation")
    axes.set(title=f"Run {run}", xlabel="step", ylabel="mean reward")
    axes.legend()
    return figure


def metric_figure(name: str, values: Mapping[int, float]) -> Figure:
    """One metric by step."""
    figure, axes = _axes((5, 3))
    axes.plot(values.keys(), values.values(), ".-")
    axes.set(title=name, xlabel="step")
    return figure


def data_url(figure: Figure) -> str:
    """The figure as a PNG that stands in the page itself."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=100)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()


def _axes(size: tuple[float, float]):  # type: ignore[no-untyped-def]  # a figure and its axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    return figure, axes
