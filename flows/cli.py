"""`rollmill`: a short way to the flows and to the store. Imports what a command needs, when it needs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows import cli_champion, cli_data, cli_environments, cli_inspect, cli_move, cli_runs
from flows.cli_data import DEFAULT_STORE, StoreOption
from flows.cli_runs import SetOption, VerboseOption, assignments, prepare_prefect, run_flow, show_summary
from storage.errors import RollmillError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train multi-turn LLM agents with GRPO as a pipeline of batch jobs.",
)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML file with the run's configuration.")],
    set_: SetOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Train a run from its config, or go on with it from where it stands."""
    from flows.config import load_config

    checked = load_config(config, assignments(set_))
    prepare_prefect(verbose)

    from flows.train import train as train_flow

    run_flow(train_flow, config=checked)
    show_summary(checked.store, checked.name)


@app.command()
def check(
    config: Annotated[Path, typer.Argument(help="YAML file with the run's configuration.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it with all defaults, as the parameters of a deployment.")
    ] = False,
) -> None:
    """Check a config, and say every mistake in it, without starting anything."""
    from flows.config import load_config

    checked = load_config(config)
    if as_json:
        typer.echo(json.dumps({"config": checked.model_dump(mode="json")}, indent=2))
        return
    typer.echo(f"{config} is sound: run {checked.name}, {checked.steps} steps, store {checked.store}.")


@app.command()
def serve(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    step: Annotated[int | None, typer.Option(help="Step of the adapter; the last one by default.")] = None,
    port: Annotated[int, typer.Option(help="Port on this machine's loopback address.")] = 8000,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Serve an adapter with vLLM's OpenAI-compatible server, for programs on this machine."""
    import secrets

    from tasks.inference.serve import ADDRESS, KEY_VARIABLE, serve_adapter
    from tasks.learner import base_folder
    from tasks.run import Run

    found = Run.load(str(store), run)
    if step is None:
        step = max(found.store.adapter_steps(run), default=found.first_step)
    folder = found.store.adapter(found.adapter_of(step), step)
    key = os.environ.get(KEY_VARIABLE) or secrets.token_urlsafe(24)
    typer.echo(
        f"Serving step {step} of {run} as model {run!r}; it takes about half a minute to start. Then:\n"
        f"  curl http://{ADDRESS}:{port}/v1/chat/completions -H 'Authorization: Bearer {key}' \\\n"
        f'    -H \'Content-Type: application/json\' -d \'{{"model": "{run}", '
        '"messages": [{"role": "user", "content": "Hello"}]}\''
    )
    config = found.config
    raise typer.Exit(
        serve_adapter(
            config.model, config.inference, base_folder(found), folder, name=run, port=port, api_key=key
        )
    )


for fragment in (cli_runs, cli_data, cli_inspect, cli_move, cli_champion, cli_environments):
    app.registered_commands += fragment.app.registered_commands


def main() -> None:
    """Entry point: a fault that the user can act on is printed as text, and the exit code is 2."""
    try:
        app()
    except RollmillError as error:
        print(f"rollmill: {error}", file=sys.stderr)
        sys.exit(2)
