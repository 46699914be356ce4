"""Runs that die at a chosen point: SIGKILL at the n-th operation that changes what is on the disk.

A run is a process of its own, forked from one that has imported everything already. Each rename, link, fsync
and removal counts as one operation; the process kills itself just before or just after the one that it was
told, so that every boundary between two states of the store can be reached, and always the same one again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

OPERATIONS = ("replace", "link", "fsync", "unlink", "rmdir")


@dataclass(frozen=True)
class Crash:
    """Die at the `operation`-th operation, counted from 1; before it happens, or when it has happened."""

    operation: int
    after: bool


def start_run(config: dict[str, Any], api_url: str, crash: Crash | None) -> BaseProcess:
    """Start `train` in a process of its own, which dies as told."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.preload"])
    process = context.Process(target=_run, args=(config, api_url, crash))
    process.start()
    return process


def was_killed(process: BaseProcess, timeout: float = 120) -> bool:
    """Wait for the end of a run; whether it was its crash. Raises AssertionError when it failed otherwise."""
    process.join(timeout)
    assert process.exitcode in (0, -signal.SIGKILL), f"the run ended with exit code {process.exitcode}"
    return process.exitcode != 0


def _run(config: dict[str, Any], api_url: str, crash: Crash | None) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_LEVEL, temporary_settings

    from flows.train import train
    from tasks.settings import RunConfig

    with temporary_settings({PREFECT_API_URL: api_url, PREFECT_LOGGING_LEVEL: "CRITICAL"}):
        if crash is not None:
            _arm(crash)
        asyncio.run(train(RunConfig.model_validate(config)))


def _arm(crash: Crash) -> None:
    """Have this process kill itself at the operation."""
    done = 0

    def counted(original: Any) -> Any:
        def operate(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            now = done == crash.operation
            if now and not crash.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return operate

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
