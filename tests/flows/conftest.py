"""Runs of a tiny model, as a user starts them: by the command line, in a process of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prefect_environment(tmp_path_factory):
    """Environment variables of a Prefect of this test session's own, with its database made already."""
    home = tmp_path_factory.mktemp("prefect")
    environment = {**os.environ, "PREFECT_HOME": str(home / "not" / "there"), "PYTHONPATH": str(ROOT)}
    environment.pop("PREFECT_API_URL", None)
    return environment


def tiny_document(model: Path, store: Path, name: str = "r", **sections) -> dict:
    """The config of a tiny run; keyword arguments replace whole sections."""
    return {
        "name": name,
        "store": str(store),
        "steps": 2,
        "model": {"base": str(model), "lora": {"rank": 4, "alpha": 8}},
        "environment": {"name": "tests.flows.worlds:SlowGuess", "args": {"high": 16, "guesses": 2}},
        "scenarios": {"train": 12, "validation": 4},
        "rollouts": {
            "groups_per_step": 4,
            "rollouts_per_group": 2,
            "max_turns": 2,
            "max_tokens_per_turn": 6,
            "max_concurrency": 4,
        },
        "inference": {"engine": "transformers", "max_model_len": 512},
        "update": {"learning_rate": 1e-3},
        "validation": {"at_start": True},
        **sections,
    }


@pytest.fixture
def tiny_config(tiny_model, tmp_path):
    """Writes the config of a tiny run and returns its path; keyword arguments replace whole sections."""

    def write(name: str = "r", **sections) -> Path:
        path = tmp_path / f"{name}.yaml"
        store = Path(sections.pop("store", tmp_path / "store"))
        path.write_text(yaml.safe_dump(tiny_document(tiny_model, store, name, **sections)))
        return path

    return write


@pytest.fixture
def rollmill(prefect_environment):
    """Starts `rollmill` with arguments, in a process group that ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows", *map(str, arguments)],
            cwd=ROOT,
            env=prefect_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        kill_group(process)


def kill_group(process: subprocess.Popen[str]) -> None:
    """SIGKILL a process and all that it started in its group, which is what a lost machine does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def finish(process: subprocess.Popen[str], timeout: float = 400) -> str:
    """Wait for a process that must succeed; returns what it printed."""
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return output
