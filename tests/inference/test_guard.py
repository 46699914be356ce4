"""The guard: whatever becomes of the owner, nothing that was started stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from tasks.inference import guard
from tasks.inference.vllm_server import start_guarded

# Starts a child in a session of its own, which ignores SIGTERM, and an orphan whose parent has gone.
FAMILY = """
import os, subprocess, sys, time
sleeper = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'
stubborn = subprocess.Popen([sys.executable, '-c', sleeper], start_new_session=True)
orphan_maker = '''
import subprocess
print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True).pid)
'''
orphan = int(subprocess.run([sys.executable, '-c', orphan_maker], stdout=subprocess.PIPE).stdout)
with open(sys.argv[1] + '.new', 'w') as file:
    file.write(f'{os.getpid()} {stubborn.pid} {orphan}')
os.rename(sys.argv[1] + '.new', sys.argv[1])
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != b"Z"


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def pids_in(file: Path) -> list[int]:
    wait_until(file.exists)
    return [int(pid) for pid in file.read_text().split()]


@pytest.fixture
def folder():
    """What the guard is to remove."""
    path = Path(tempfile.mkdtemp())
    (path / "weights").write_text("scratch")
    return path


def start(command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return start_guarded(command, folder=folder, log=file, environment=dict(os.environ))


def test_closing_its_input_ends_the_whole_family_and_the_folder(folder, tmp_path, monkeypatch):
    process = start([sys.executable, "-c", FAMILY, str(tmp_path / "pids")], folder, tmp_path / "log")
    pids = pids_in(tmp_path / "pids")
    assert all(map(is_alive, pids))
    process.stdin.close()
    process.wait(20)
    assert not any(map(is_alive, pids))
    assert not folder.exists()


def test_kill_9_of_the_owner_ends_the_whole_family_and_the_folder(folder, tmp_path):
    # The owner starts it in a thread that ends at once, as flows do, and leaves a fork that holds the pipe.
    owner = textwrap.dedent(f"""
        import os, sys, threading, time
        from pathlib import Path
        from tasks.inference.vllm_server import start_guarded
        command = [sys.executable, "-c", {FAMILY!r}, {str(tmp_path / "pids")!r}]
        def start():
            global process
            with open({str(tmp_path / "log")!r}, "ab") as log:
                process = start_guarded(
                    command, folder=Path({str(folder)!r}), log=log, environment=dict(os.environ)
                )
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        print(process.pid, flush=True)
        time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, start_new_session=True)
    guard_pid = int(process.stdout.readline())
    pids = pids_in(tmp_path / "pids")
    assert all(map(is_alive, [guard_pid, *pids]))
    os.kill(process.pid, signal.SIGKILL)
    try:
        wait_until(lambda: not any(map(is_alive, [guard_pid, *pids])))
        wait_until(lambda: not folder.exists())
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the fork
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_guard_ends_the_family(folder, tmp_path, number):
    process = start([sys.executable, "-c", FAMILY, str(tmp_path / "pids")], folder, tmp_path / "log")
    pids = pids_in(tmp_path / "pids")
    process.send_signal(number)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert not any(map(is_alive, pids))


def test_a_command_that_ends_leaves_no_children_and_gives_its_status(folder, tmp_path):
    parent = textwrap.dedent(f"""
        import subprocess, sys
        from pathlib import Path
        Path({str(tmp_path / "pids")!r}).write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        sys.exit(3)
    """)
    process = start([sys.executable, "-c", parent], folder, tmp_path / "log")
    assert process.wait(20) == 3
    assert not any(map(is_alive, pids_in(tmp_path / "pids")))


def test_a_command_that_is_not_there_says_so_in_the_log(folder, tmp_path):
    assert start(["/nonexistent/vllm"], folder, tmp_path / "log").wait(20) == 127
    assert "No such file" in (tmp_path / "log").read_text()


def test_the_guard_itself_needs_milliseconds():
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, "/nonexistent", "true"],
        stdin=subprocess.PIPE,
        check=False,
    )
    assert time.monotonic() - begin < 2
