"""`rollmill stage, resume, rerun, fork, accept`: work on runs that are in a store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli_data import DEFAULT_STORE, StoreOption

app = typer.Typer()

RunArgument = Annotated[str, typer.Argument(help="Name of the run.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a setting, e.g. steps=20."),
]
VerboseOption = Annotated[bool, typer.Option(help="Show the logs of Prefect and of the stages.")]


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help="The stage, e.g. score_rollouts.")],
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    step: Annotated[int | None, typer.Option(help="Training step; generate_scenarios has none.")] = None,
    split: Annotated[str | None, typer.Option(help="train or validation.")] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Another scorer for score_rollouts, as package.module:function.")
    ] = None,
    reward: Annotated[
        Path | None, typer.Option(help="YAML file with another `reward` section for score_rollouts.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    verbose: VerboseOption = False,
) -> None:
    """Run one stage of a stored run again; what it published before is kept under _replaced."""
    prepare_prefect(verbose)

    from flows.stages import STAGES

    if name not in STAGES:
        raise typer.BadParameter(f"there is no stage {name!r}; the stages are {', '.join(STAGES)}")
    if scorer is not None and reward is not None:
        raise typer.BadParameter("--scorer and --reward name two scorers; give one of them")
    wanted = {"scorer": scorer} if scorer is not None else _reward(reward) if reward is not None else None
    given = {"run": run, "step": step, "split": split, "reward": wanted, "store": str(store)}
    parameters = {key: value for key, value in given.items() if value is not None}
    unknown = set(parameters) - set(STAGES[name].parameters.properties)
    if unknown:
        raise typer.BadParameter(f"{name} takes no {', '.join(sorted(unknown))}")
    missing = set(STAGES[name].parameters.required) - set(parameters)
    if missing:
        raise typer.BadParameter(f"{name} needs {', '.join(f'--{field}' for field in sorted(missing))}")
    _existing(store, run)
    run_flow(STAGES[name], **parameters)


@app.command()
def resume(
    run: RunArgument,
    steps: Annotated[int | None, typer.Option(help="Updates in all; as many as before by default.")] = None,
    stale: Annotated[
        str, typer.Option(help="What becomes of stale stages: refuse to go on, or rerun.")
    ] = "refuse",
    store: StoreOption = DEFAULT_STORE,
    verbose: VerboseOption = False,
) -> None:
    """Go on with a stored run from where it stands, without its config file."""
    _existing(store, run)
    prepare_prefect(verbose)

    from flows.resume import resume as resume_flow

    run_flow(resume_flow, run=run, steps=steps, stale=stale, store=str(store))
    show_summary(str(store), run)


@app.command()
def rerun(
    run: RunArgument,
    from_: Annotated[str, typer.Option("--from", metavar="STAGE", help="The stage to begin with.")],
    step: Annotated[int | None, typer.Option(help="Its step; generate_scenarios has none.")] = None,
    through: Annotated[int | None, typer.Option(help="Last step to do again; all by default.")] = None,
    store: StoreOption = DEFAULT_STORE,
    verbose: VerboseOption = False,
) -> None:
    """Do a stage again, and then whatever was made from it; what it replaces is kept under _replaced."""
    _existing(store, run)
    prepare_prefect(verbose)

    from flows.resume import rerun as rerun_flow

    run_flow(rerun_flow, run=run, from_stage=from_, step=step, through=through, store=str(store))
    show_summary(str(store), run)


@app.command()
def fork(
    run: RunArgument,
    as_: Annotated[str, typer.Option("--as", metavar="NAME", help="Name of the new run.")],
    step: Annotated[
        int | None, typer.Option(help="Step to go on from; that of the last adapter by default.")
    ] = None,
    set_: SetOption = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Make a new run that goes on from a step of another, with changed settings; `resume` then trains it."""
    from flows.config import changed_config
    from tasks.fork import fork_run
    from tasks.run import Run

    parent = Run.load(str(store), run)
    new = fork_run(parent, changed_config(parent.config, {**assignments(set_), "name": as_}), step)
    point = new.parent
    assert point is not None  # it was forked a moment ago
    shares = {f"the scenarios of {run}": point.scenarios, "its rollouts of that step": point.rollouts}
    shared = " and ".join(what for what, owner in shares.items() if owner is not None)
    typer.echo(
        f"Run {as_} goes on from the policy of step {point.step} of {run} and shares "
        f"{shared or 'nothing else'}. Train it:\n  rollmill resume {as_} --store {store}"
    )


@app.command()
def accept(run: RunArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Take a run's stale stages as they are: what they were made from has changed, and they stay."""
    from tasks.run import Run

    found = Run.load(str(store), run)
    with found.store.writer(run):
        accepted = found.accept_stale()
    for key in accepted:
        typer.echo(f"accepted: {key}")
    typer.echo(f"{len(accepted)} stale stages of {run} are taken as they are.")


def run_flow(flow: Any, **parameters: Any) -> None:
    """Run a flow to its end, with its progress on the terminal."""
    from rich.console import Console

    from flows.terminal import Terminal
    from tasks.progress import listen

    with Terminal(Console()) as terminal, listen(terminal):
        result = flow(**parameters)
        if asyncio.iscoroutine(result):
            asyncio.run(result)


def show_summary(store: str, run: str) -> None:
    from rich.console import Console

    from flows.summary import print_summary

    print_summary(Console(), store, run)


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


def assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """Dotted fields and their values, from texts like `steps=20`; values are YAML."""
    import yaml

    found = {}
    for text in texts or []:
        field, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"--set takes FIELD=VALUE, got {text!r}")
        found[field] = yaml.safe_load(value)
    return found


def _existing(store: Path, run: str) -> None:
    """Refuse a run that is not there, before Prefect is started for it."""
    from storage.store import Store

    Store.existing(store).existing_run(run)


def _reward(path: Path) -> dict[str, Any]:
    """The reward section that stands in a YAML file. Raises ConfigError when it is none, or cannot score."""
    import yaml
    from pydantic import ValidationError

    from storage.errors import ConfigError
    from tasks.rewards.scorers import check_scorer
    from tasks.settings import RewardSettings

    try:
        settings = RewardSettings.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{path} is not a `reward` section: {error}") from error
    check_scorer(settings)
    return settings.model_dump()
