"""Writes docs/config.md from the settings: `python -m flows.document_config > docs/config.md`."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tasks.settings import RunConfig, Settings


def document(model: type[BaseModel] = RunConfig, prefix: str = "") -> str:
    """A table of the model's fields, and one for each section in it."""
    rows, sections = [], []
    for name, field in model.model_fields.items():
        nested = _section(field.annotation)
        if nested is not None:
            sections.append(document(nested, f"{prefix}{name}."))
            continue
        default = "required" if field.default is PydanticUndefined else f"`{field.default!r}`"
        meaning = " ".join((field.description or "").split())
        rows.append(f"| `{prefix}{name}` | {default} | {meaning} |")
    title = f"## {prefix.rstrip('.') or 'The run'}"
    table = "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])
    return "\n\n".join([title, table, *sections])


def _section(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *get_args(annotation)]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Settings)), None)


def page() -> str:
    return (
        "# Settings\n\nGenerated from `tasks/settings.py` by `python -m flows.document_config`. "
        "A setting is refused when it is unknown, and every mistake is listed before anything starts: "
        "`rollmill check CONFIG`.\n\n" + document() + "\n"
    )


if __name__ == "__main__":
    print(page(), end="")
