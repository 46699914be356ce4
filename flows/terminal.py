"""What a person sees while a flow runs: the current piece of work, and a line for each finished one."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Terminal:
    """A progress listener: live on a terminal; elsewhere it prints finished work alone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._step_label, self._left = "", ""
        self._steps_begun: list[float] = []

    def __enter__(self) -> Terminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin_step(self, step: int, steps: int) -> None:
        self._steps_begun.append(time.monotonic())
        self._step_label = f"step {step + 1}/{steps}"
        if len(self._steps_begun) > 1:
            mean = (self._steps_begun[-1] - self._steps_begun[0]) / (len(self._steps_begun) - 1)
            self._left = f"about {_duration(mean * (steps - step))} left"

    def begin(self, what: str, total: int | None) -> None:
        self._what, self._started, self._note, self._done, self._total = what, time.monotonic(), "", 0, total
        self._task = self._live.add_task(self._label, total=total, note="", left=self._left)

    def advance(self, done: int, note: str) -> None:
        self._done, self._note = done, note
        self._live.update(self._task, completed=done, note=note)

    def end(self) -> None:
        self._live.remove_task(self._task)
        seconds = time.monotonic() - self._started
        count = f"{self._done}/{self._total}" if self._total else ""
        self._console.print(
            f"{self._label:<39} {count:>7}  {self._note:<13} {seconds:6.1f} s",
            highlight=False,
        )

    @property
    def _label(self) -> str:
        return f"{self._step_label:<11}{self._what}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
