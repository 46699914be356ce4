"""`rollmill show, explain, report`: one episode, what stands behind an adapter, a run as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli_data import DEFAULT_STORE, StoreOption
from flows.output import cell, print_table, visible

if TYPE_CHECKING:
    from rich.console import Console

    from storage.explain import Explanation
    from storage.records import Message

app = typer.Typer()

ROLE_STYLES = {"system": "dim", "user": "cyan", "assistant": "green", "tool": "yellow"}


@app.command()
def show(
    trajectory: Annotated[str, typer.Argument(help="Id of a trajectory, or the beginning of it.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="Show the log-probability of each token.")] = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show one episode: the conversation, its rewards and why it ended."""
    from rich.console import Console

    from storage.lookup import find_trajectory
    from storage.store import Store

    found = find_trajectory(Store.existing(store), trajectory, tokens=tokens)
    console, episode = Console(highlight=False), found.trajectory
    key = episode.key
    _line(console, "bold", f"{episode.trajectory_id}  run {key.run}, step {key.step}, {key.split}")
    _line(
        console,
        "dim",
        f"scenario {key.scenario_id}, sample {episode.sample_no}, policy {episode.policy_version}, "
        f"{len(episode.turns)} turns, {sum(episode.mask)} sampled tokens, {episode.seconds:.1f} s",
    )
    for message in episode.messages:
        _message(console, message)
    _line(console, "bold", f"\nended: {episode.stop_reason}")
    if episode.error is not None:
        _line(console, "red", episode.error)
    for reward in found.rewards:
        _line(console, "magenta", _reward(reward))
    for name, value in sorted(episode.metrics.items()):
        _line(console, "dim", f"{name}: {value:g}")
    if tokens:
        import pyarrow as pa

        print_table(pa.Table.from_pylist(list(found.tokens)))


@app.command()
def explain(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    step: Annotated[int | None, typer.Option(help="Step of the adapter; the last one by default.")] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Explain an adapter: what it was made from, with digests computed anew from the files."""
    from rich.console import Console

    from storage.errors import StoreError
    from storage.explain import explain_adapter
    from storage.store import Store

    found = Store.existing(store)
    found.existing_run(run)
    steps = found.adapter_steps(run)
    if not steps:
        raise StoreError(f"Run {run} has no adapter yet.")
    explanation = explain_adapter(found, run, steps[-1] if step is None else step)
    _print_explanation(Console(highlight=False, soft_wrap=True), explanation)
    if explanation.mismatches:
        raise StoreError(f"{len(explanation.mismatches)} files are not as they were recorded; see above.")


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File; RUN.html by default.")] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Write a run as one HTML file: figures, numbers, episodes, lineage and configuration."""
    from flows.report import write_report
    from storage.store import Store

    path = out or Path(f"{run}.html")
    write_report(Store.existing(store), run, path)
    typer.echo(f"Report of {run} written to {path}.")


def _print_explanation(console: Console, found: Explanation) -> None:
    import pyarrow as pa

    manifest = found.manifest
    _line(console, "bold", f"Adapter of step {manifest['step']} of run {manifest['run']}")
    for name in ("base", "created_at", "code_version", "config_digest"):
        _line(console, "", f"  {name.replace('_', ' ')}: {manifest[name]}")
    parent = found.run.get("parent")
    if parent is not None:
        _line(console, "", f"  run forked from step {parent['step']} of {parent['run']}")
    steps = ", ".join(
        str(item["step"]) if item["run"] == manifest["run"] else f"{item['step']} of {item['run']}"
        for item in found.parents
    )
    _line(console, "", f"  parents: {steps or 'none: the run starts from it'}")
    if found.rollouts.get("rollouts"):
        _section(console, "Rollouts", [found.rollouts])
    _section(console, "Scorers", found.scorers)
    _section(console, "Judges", found.judges)
    evidence = [
        {"path": item.path, "used as": item.used_as, "recorded": item.recorded[:19], "now": item.verdict}
        for item in found.evidence
    ]
    print_table(pa.Table.from_pylist(evidence), "Evidence")
    _line(console, "bold", "Configuration")
    _settings(console, found.run["config"])


def _section(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    _line(console, "bold", title if rows else f"{title}: none")
    for row in rows:
        _line(
            console,
            "",
            "  " + ", ".join(f"{key.replace('_', ' ')} {cell(value)}" for key, value in row.items()),
        )


def _settings(console: Console, values: Mapping[str, Any], prefix: str = "") -> None:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            _settings(console, value, f"{prefix}{name}.")
        else:
            _line(console, "dim", f"  {prefix}{name}: {value}")


def _message(console: Console, message: Message) -> None:
    style = ROLE_STYLES.get(message.role, "")
    name = "" if message.name is None else f" ({message.name})"
    _line(console, f"bold {style}".strip(), f"\n{message.role}{name}")
    if message.reasoning is not None:
        _line(console, f"italic {style}".strip(), message.reasoning)
    if message.content is not None:
        _line(console, style, message.content)
    for call in message.tool_calls:
        _line(console, style, f"→ {call.name}({call.arguments})")


def _reward(reward: Mapping[str, Any]) -> str:
    if reward["reward"] is None:
        return f"{reward['scorer']}: unscored ({reward['error']})"
    advantage = "" if reward["advantage"] is None else f", advantage {reward['advantage']:.3f}"
    parts = "".join(f", {name} {value:g}" for name, value in reward["components"].items())
    why = f"\n  {reward['explanation']}" if reward["explanation"] else ""
    mean = cell(reward["group_mean"])
    return f"{reward['scorer']}: {reward['reward']:g} (group mean {mean}{advantage}{parts}){why}"


def _line(console: Console, style: str, text: str) -> None:
    """Print stored text as text: neither rich's markup nor a terminal's escapes mean anything in it."""
    from rich.text import Text

    console.print(Text(visible(text), style=style))
