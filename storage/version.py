"""Which code made something: the version, and the commit where the code runs from a checkout."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def code_version() -> str:
    """E.g. `0.1.0+3f2a9c1d`, with `.dirty` when files of the checkout were changed."""
    try:
        number = version("rollmill")
    except PackageNotFoundError:
        number = "0"
    here = Path(__file__).resolve().parent
    try:
        commit = _git(here, "rev-parse", "--short=8", "HEAD")
        dirty = ".dirty" if _git(here, "status", "--porcelain", "--", "../flows", "../tasks", ".") else ""
    except (OSError, subprocess.CalledProcessError):
        return number  # installed from a wheel
    return f"{number}+{commit}{dirty}"


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()
