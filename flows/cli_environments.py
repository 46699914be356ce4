"""`rollmill check-env, play`: try an environment without a model."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

app = typer.Typer()

EnvironmentArgument = Annotated[str, typer.Argument(help="The environment, as package.module:Class.")]
ArgsOption = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="An argument of its constructor; values are YAML."),
]


@app.command("check-env")
def check_env(
    environment: EnvironmentArgument,
    arg: ArgsOption = None,
    replies: Annotated[
        list[str] | None, typer.Option("--reply", help="A reply of a scripted policy; give several.")
    ] = None,
    scenarios: Annotated[int, typer.Option(min=1, help="Scenarios of each split that are played.")] = 4,
    turns: Annotated[int, typer.Option(min=1, help="Replies in an episode.")] = 20,
) -> None:
    """Play an environment with random and scripted policies, and say what would spoil a training run."""
    from tasks.environments.check import POLICIES, Limits, check_environment, scripted_policy

    policies = dict(POLICIES)
    if replies:
        policies["the given replies"] = scripted_policy(replies)
    report = asyncio.run(
        check_environment(_maker(environment, arg), policies, Limits(scenarios=scenarios, turns=turns))
    )
    for note in report.notes:
        typer.echo(f"note: {note}")
    for fault in report.faults:
        typer.echo(f"fault: {fault}")
    if report.faults:
        raise typer.Exit(1)
    typer.echo(f"{environment} is sound with {len(policies)} policies, alone, again and side by side.")


@app.command()
def play(
    environment: EnvironmentArgument,
    arg: ArgsOption = None,
    split: Annotated[str, typer.Option(help="train or validation.")] = "train",
    scenario: Annotated[int, typer.Option(min=0, help="Which of its scenarios, from 0 on.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed that the scenarios are made with.")] = 0,
) -> None:
    """Be the policy: read what the environment says, and type the replies.

    A reply that begins with `/NAME` calls the tool NAME, with the JSON object that follows as its arguments.
    """
    maker = _maker(environment, arg)
    made = list(maker().scenarios(split, scenario + 1, seed))
    asyncio.run(_play(maker(), made[scenario]))


async def _play(environment: Any, scenario: Any) -> None:
    from storage.records import Message

    total, scored = 0.0, False
    try:
        _show(await environment.reset(scenario))
        for tool in environment.tools:
            function = tool["function"]
            typer.echo(f"tool /{function['name']} {json.dumps(function.get('parameters', {}))}")
        for turn in range(10_000):
            try:
                text = await asyncio.to_thread(input, "you> ")
            except EOFError:
                typer.echo("\nYou left the episode.")
                return
            calls = (_call(text, turn),) if text.startswith("/") else ()
            step = await environment.step(Message("assistant", None if calls else text, tool_calls=calls))
            _show(step.messages)
            if step.reward is not None:
                total, scored = total + step.reward, True
            numbers = {**({} if step.reward is None else {"reward": step.reward}), **step.metrics}
            if numbers:
                typer.echo("  " + ", ".join(f"{name} {value:g}" for name, value in numbers.items()))
            if step.done:
                typer.echo(f"Done. Reward {total:g}." if scored else "Done; the environment gave no reward.")
                return
    finally:
        await environment.close()


def _call(text: str, turn: int) -> Any:
    from storage.records import ToolCall

    name, _, arguments = text[1:].partition(" ")
    return ToolCall(f"call{turn}", name, arguments.strip() or "{}")


def _show(messages: Any) -> None:
    for message in messages:
        typer.echo(f"{message.role}> {message.content}")


def _maker(environment: str, args: list[str] | None) -> Any:
    from functools import partial

    from flows.cli_runs import assignments
    from tasks.loading import make_environment
    from tasks.settings import EnvironmentSettings

    settings = EnvironmentSettings(name=environment, args=assignments(args))
    make_environment(settings)
    return partial(make_environment, settings)
