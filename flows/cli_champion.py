"""`rollmill promote, champion`: which adapter is the champion in MLflow's registry."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli_data import DEFAULT_STORE, StoreOption
from flows.cli_runs import RunArgument

app = typer.Typer()


@app.command()
def promote(
    run: RunArgument,
    step: Annotated[int | None, typer.Option(help="Step of the adapter; the last one by default.")] = None,
    reason: Annotated[str, typer.Option(help="Why; kept with the version.")] = "promoted by hand",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Make an adapter the champion; with an earlier one, this is the roll-back."""
    from storage.registry import Registry
    from tasks.retraining import registered_model
    from tasks.run import Run

    found = Run.load(str(store), run)
    if step is None:
        step = max(found.store.adapter_steps(run), default=found.first_step)
    registry = Registry(found.store, found.config.tracking.mlflow_uri, registered_model(found.config))
    new = registry.promote(found.adapter_of(step), step, reason)
    typer.echo(f"Version {new.version} of model {new.model} is the champion: step {new.step} of {new.run}.")


@app.command()
def champion(
    run: Annotated[str, typer.Argument(help="A run of the model in question.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Say which adapter is the champion."""
    from storage.registry import Registry
    from tasks.retraining import registered_model
    from tasks.run import Run

    found = Run.load(str(store), run)
    model = registered_model(found.config)
    now = Registry(found.store, found.config.tracking.mlflow_uri, model).champion()
    if now is None:
        typer.echo(f"Model {model} has no champion yet.")
    else:
        typer.echo(
            f"Version {now.version} of model {now.model}: step {now.step} of {now.run} in {now.store}."
        )
