"""How stages tell what they are doing. Without a listener nothing is said; flows/terminal.py listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    def begin_step(self, step: int, steps: int) -> None:
        """Training step `step` of `steps` starts."""

    def begin(self, what: str, total: int | None) -> None:
        """A piece of work starts; `total` units, or None where it cannot be counted."""

    def advance(self, done: int, note: str) -> None:
        """`done` units of the current piece are finished; `note` says how they look."""

    def end(self) -> None:
        """The current piece of work is over."""


_listener: ContextVar[Listener | None] = ContextVar("progress_listener", default=None)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Tell `listener` about the work done inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def begin_step(step: int, steps: int) -> None:
    """Tell whoever listens that a training step starts."""
    if (listener := _listener.get()) is not None:
        listener.begin_step(step, steps)


class Progress:
    """One piece of work, as its stage reports it."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def advance(self, done: int, note: str = "") -> None:
        if self._listener is not None:
            self._listener.advance(done, note)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Progress]:
    """Report a piece of work to whoever listens."""
    listener = _listener.get()
    if listener is not None:
        listener.begin(what, total)
    try:
        yield Progress(listener)
    finally:
        if listener is not None:
            listener.end()
