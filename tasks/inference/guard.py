"""Run a command, and leave nothing of it behind whatever becomes of the process that asked for it.

    python -I -S guard.py FOLDER COMMAND...

The owner holds the write end of this program's stdin and never writes. When the owner closes it or dies, by
kill -9 too, the command and all that it started are ended and FOLDER is removed. PR_SET_PDEATHSIG could not
do that: it fires when the *thread* that forked ends, and flows run in threads that come and go. Orphans are
adopted (PR_SET_CHILD_SUBREAPER), so that a child in a session of its own is found as well.

Only the standard library, and run by path: it must be there in milliseconds. Linux only, like vLLM.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

GRACE = 10.0  # seconds between asking the command to end and killing it
OWNER_CHECK = 1.0  # seconds; a child that the owner forked may hold the pipe open after the owner's death

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(folder: str, command: list[str]) -> int:
    """Run `command` until it ends or the owner does; returns its exit status as a shell would give it."""
    owner = os.getppid()
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake = _wake_on((*ENDINGS, signal.SIGCHLD))
    child = _start(command, prctl)
    status: int | None = None
    while status is None:
        readable = select.select([0, wake], [], [], OWNER_CHECK)[0]
        signals = os.read(wake, 4096) if wake in readable else b""
        if 0 in readable or os.getppid() != owner or any(number in signals for number in ENDINGS):
            break
        status = _reap(child)
    _end(child, running=status is None)
    shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status) % 256 if status is not None else 128 + signal.SIGTERM


def _wake_on(numbers: tuple[signal.Signals, ...]) -> int:
    """A descriptor from which the number of each signal that arrives can be read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return reader


def _start(command: list[str], prctl: Callable[..., int]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        prctl(
            PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0
        )  # this process has one thread: here it is the right call
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _end(child: int, *, running: bool) -> None:
    """Ask the command to end, which lets it end its own children in order; kill what is left of them."""
    if running:
        os.kill(child, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while _reap(child) is None and time.monotonic() < deadline:
            time.sleep(0.05)
    while left := _descendants():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(child)
        time.sleep(0.02)


def _reap(child: int) -> int | None:
    """Collect every ended child and orphan; returns the wait status of `child` if it was among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            # pid (name, which may hold anything) state parent …
            parent = int(stat.read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = children.get(os.getpid(), [])
    for pid in found:  # grows while it is walked
        found.extend(children.get(pid, []))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
