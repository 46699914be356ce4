"""Writes docs/cli.md from the commands themselves: `python -m flows.document_cli > docs/cli.md`."""

from __future__ import annotations

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from flows.cli import app


def page() -> str:
    command = get_command(app)
    context = typer.Context(command, info_name="rollmill")
    text = get_docs_for_click(obj=command, ctx=context, name="rollmill", title="Commands")
    head, rest = text.split("\n", 1)
    return f"{head}\n\nGenerated from `flows/cli*.py` by `python -m flows.document_cli`.\n{rest.rstrip()}\n"


if __name__ == "__main__":
    print(page(), end="")
