"""`rollmill export, import, gc`: what leaves a store, what enters it, and what goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_data import DEFAULT_STORE, StoreOption
from storage.errors import StoreError

app = typer.Typer()


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    out: Annotated[Path, typer.Argument(help="File to write: .jsonl or .parquet.")],
    kind: Annotated[
        str, typer.Option(help="chats, sft (episodes above --min-reward), or preferences (best and worst).")
    ] = "chats",
    step: Annotated[int | None, typer.Option(help="Only this step.")] = None,
    split: Annotated[str, typer.Option(help="train or validation.")] = "train",
    scorer: Annotated[str | None, typer.Option(help="Whose rewards; the run's own by default.")] = None,
    min_reward: Annotated[float, typer.Option(help="For sft: rewards must be above this.")] = 0.0,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Export episodes as chats, supervised examples or preference pairs."""
    from storage.exports import export_rows, write_jsonl, write_parquet_rows
    from storage.store import Store

    writers = {".jsonl": write_jsonl, ".parquet": write_parquet_rows}
    if out.suffix not in writers:
        raise StoreError(f"{out} must end with .jsonl or .parquet.")
    rows = export_rows(
        Store.existing(store), run, kind, step=step, split=split, scorer=scorer, min_reward=min_reward
    )
    typer.echo(f"{writers[out.suffix](rows, out)} rows written to {out}.")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="JSONL file, a chat a line.", exists=True, dir_okay=False)],
    run: Annotated[str, typer.Option(help="Name of the new run that holds the chats.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Import chats in OpenAI's format as episodes of a new run."""
    from storage.imports import import_chats
    from storage.store import Store

    count = import_chats(Store(store), file, run)
    typer.echo(f"{count} chats imported as run {run}.")


@app.command()
def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove it; without this, it is only listed.")
    ] = False,
    replaced_days: Annotated[float, typer.Option(help="Keep replaced files for so many days.")] = 7.0,
    last_adapters: Annotated[int, typer.Option(help="Keep the last so many adapters of each run.")] = 3,
    every: Annotated[int | None, typer.Option(help="Keep each so many-th adapter, too.", min=1)] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="RUN:STEP", help="Keep this adapter, too.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """List what may be removed: what reruns replaced, unfinished work, old adapters.

    Champions and adapters that runs were forked from always stay.
    """
    from storage.gc import Retention, plan_removals, remove
    from storage.registry import promoted_adapters
    from storage.store import Store

    found = Store.existing(store)
    policy = Retention(replaced_days, last_adapters, every)
    kept = {*promoted_adapters(found), *(_adapter(text) for text in keep or [])}
    removals = plan_removals(found, policy, kept)
    for removal in removals:
        typer.echo(f"{removal.size / 1e6:9.1f} MB  {removal.path}  ({removal.reason})")
    total = f"{len(removals)} things, {sum(removal.size for removal in removals) / 1e6:.1f} MB"
    if delete:
        remove(found, removals)
        typer.echo(f"Removed {total}.")
    else:
        typer.echo(f"{total} would be removed; nothing was. Add --delete to remove.")


def _adapter(text: str) -> tuple[str, int]:
    run, separator, step = text.rpartition(":")
    if not separator or not step.isdigit():
        raise typer.BadParameter(f"--keep takes RUN:STEP, got {text!r}")
    return run, int(step)
