"""`rollmill`: a short way to the flows and to the store. Imports what a command needs, when it needs it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows import cli_data, cli_inspect, cli_move
from flows.cli_data import DEFAULT_STORE, StoreOption
from storage.errors import RollmillError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train multi-turn LLM agents with GRPO as a pipeline of batch jobs.",
)

for fragment in (cli_data, cli_inspect, cli_move):
    app.registered_commands += fragment.app.registered_commands


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML file with the run's configuration.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a setting, e.g. steps=20."),
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Show the logs of Prefect and of the stages.")] = False,
) -> None:
    """Train a run from its config, or go on with it from where it stands."""
    from rich.console import Console

    from flows.config import load_config

    checked = load_config(config, dict(_assignment(text) for text in set_ or []))
    prepare_prefect(verbose)

    from flows.summary import print_summary
    from flows.terminal import Terminal
    from flows.train import train as train_flow
    from tasks.progress import listen

    console = Console()
    with Terminal(console) as terminal, listen(terminal):
        asyncio.run(train_flow(checked))
    print_summary(console, checked.store, checked.name)


@app.command()
def check(
    config: Annotated[Path, typer.Argument(help="YAML file with the run's configuration.")],
) -> None:
    """Check a config, and say every mistake in it, without starting anything."""
    from flows.config import load_config

    checked = load_config(config)
    typer.echo(f"{config} is sound: run {checked.name}, {checked.steps} steps, store {checked.store}.")


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help="The stage, e.g. score_rollouts.")],
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    step: Annotated[int | None, typer.Option(help="Training step; generate_scenarios has none.")] = None,
    split: Annotated[str | None, typer.Option(help="train or validation.")] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Another scorer for score_rollouts, as package.module:function.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    verbose: Annotated[bool, typer.Option(help="Show the logs of Prefect and of the stages.")] = False,
) -> None:
    """Run one stage of a stored run again; what it published before is kept under _replaced."""
    from rich.console import Console

    prepare_prefect(verbose)

    from flows.stages import STAGES
    from flows.terminal import Terminal
    from tasks.progress import listen

    if name not in STAGES:
        raise typer.BadParameter(f"there is no stage {name!r}; the stages are {', '.join(STAGES)}")
    reward = None if scorer is None else {"scorer": scorer}
    given = {"run": run, "step": step, "split": split, "reward": reward, "store": str(store)}
    parameters = {key: value for key, value in given.items() if value is not None}
    unknown = set(parameters) - set(STAGES[name].parameters.properties)
    if unknown:
        raise typer.BadParameter(f"{name} takes no {', '.join(sorted(unknown))}")
    missing = set(STAGES[name].parameters.required) - set(parameters)
    if missing:
        raise typer.BadParameter(f"{name} needs {', '.join(f'--{field}' for field in sorted(missing))}")
    with Terminal(Console()) as terminal, listen(terminal):
        flow: Any = STAGES[name]
        result = flow(**parameters)
        if asyncio.iscoroutine(result):
            asyncio.run(result)


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
        step = max(found.store.adapter_steps(run), default=0)
    folder = found.store.adapter(run, step)
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


def prepare_prefect(verbose: bool) -> None:
    """Settings for a flow that is run from the command line; what the user has set stays as it is."""
    defaults = {
        # Prefect's temporary server takes longer than its own limit to start for the first time.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",  # it grumbles when it is stopped at the end of a flow
        "DO_NOT_TRACK": "1",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        # The error of a failed flow is printed once, by `main`.
        "PREFECT_LOGGING_LEVEL": "INFO" if verbose else "CRITICAL",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    if home := os.environ.get("PREFECT_HOME"):
        # Prefect makes the folder without its parents, and its server would wait for a database forever.
        Path(home).mkdir(parents=True, exist_ok=True)


def _assignment(text: str) -> tuple[str, Any]:
    import yaml

    field, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"--set takes FIELD=VALUE, got {text!r}")
    return field, yaml.safe_load(value)


def main() -> None:
    """Entry point: a fault that the user can act on is printed as text, and the exit code is 2."""
    try:
        app()
    except RollmillError as error:
        print(f"rollmill: {error}", file=sys.stderr)
        sys.exit(2)
