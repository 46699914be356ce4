"""The server as a process: private, quiet while idle, gone with its owner, and plain about why it failed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tasks.inference.sampler import InferenceError
from tasks.inference.vllm_server import VllmServer, private_folder
from tests.inference.conftest import SETTINGS
from tests.inference.test_guard import is_alive, wait_until

pytestmark = pytest.mark.vllm
in_session_loop = pytest.mark.asyncio(loop_scope="session")  # the one that the shared server was opened in


def family(server: VllmServer) -> list[psutil.Process]:
    """The processes of a running server, found by the private folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("VLLM_RPC_BASE_PATH") == str(server.folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@in_session_loop
async def test_nobody_else_can_reach_the_server(vllm_server):
    """Its control endpoints need no key: so no other user may connect, to its socket or to a port."""
    assert stat.S_IMODE(vllm_server.folder.stat().st_mode) == 0o700
    assert vllm_server.socket.parent == vllm_server.folder
    assert stat.S_ISSOCK(vllm_server.socket.stat().st_mode)
    for process in family(vllm_server):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:  # torch's own, for workers that are not there
                assert connection.laddr.ip in ("127.0.0.1", "::1")
                assert not answers_http(connection.laddr.ip, connection.laddr.port)
        for connection in process.net_connections("unix"):
            if connection.laddr.startswith("/"):
                assert Path(connection.laddr).parent == vllm_server.folder


def answers_http(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=2) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            return connection.recv(64).startswith(b"HTTP")
        except (TimeoutError, ConnectionError):
            return False


@in_session_loop
async def test_an_idle_server_leaves_the_processor_to_the_trainer(vllm_server):
    def seconds() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in family(vllm_server))

    await asyncio.sleep(2)  # threads that waited for more work have given up
    before = seconds()
    await asyncio.sleep(5)
    assert seconds() - before < 0.5


@in_session_loop
async def test_a_server_that_cannot_start_says_why_at_once(tiny_model, tmp_path):
    settings = SETTINGS.model_copy(update={"max_model_len": 4096})  # the tiny model has 1024
    begin = time.monotonic()
    with pytest.raises(InferenceError) as caught:
        async with VllmServer(tiny_model, settings, tmp_path / "vllm.log") as server:
            await server.ready()
    assert time.monotonic() - begin < settings.startup_timeout / 2
    for part in (
        "status 1",
        "starting",
        str(tmp_path / "vllm.log"),
        "max_position_embeddings",
        "transformers",
    ):
        assert part in str(caught.value)
    assert not server.folder.exists()


@in_session_loop
async def test_a_server_that_is_too_slow_is_given_up_and_ended(tiny_model, tmp_path):
    settings = SETTINGS.model_copy(update={"startup_timeout": 1.0})
    with pytest.raises(InferenceError, match="startup_timeout"):
        async with VllmServer(tiny_model, settings, tmp_path / "vllm.log") as server:
            await server.ready()
    assert not family(server)
    assert not server.folder.exists()


@in_session_loop
async def test_cancelling_what_waits_for_the_server_ends_it(tiny_model, tmp_path):
    async def wait():
        async with VllmServer(tiny_model, SETTINGS, tmp_path / "vllm.log") as server:
            servers.append(server)
            await server.ready()

    servers: list[VllmServer] = []
    task = asyncio.create_task(wait())
    await asyncio.sleep(1)
    assert family(servers[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not family(servers[0])


def test_kill_9_of_the_owner_leaves_no_vllm_behind(tiny_model, tmp_path):
    owner = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from tasks.inference.vllm_server import VllmServer
        from tests.inference.conftest import SETTINGS
        async def main():
            log = Path({str(tmp_path / "log")!r})
            async with VllmServer(Path({str(tiny_model)!r}), SETTINGS, log) as server:
                print(server.folder, flush=True)
                await server.ready()
                print("ready", flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
    """)
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    server = VllmServer(tiny_model, SETTINGS, tmp_path / "log")
    server.folder = Path(process.stdout.readline().strip())
    assert process.stdout.readline() == "ready\n"
    pids = [member.pid for member in family(server)]
    assert len(pids) >= 3  # guard, API server, engine
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not server.folder.exists())


def test_the_folder_is_short_enough_for_sockets(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    folder = private_folder()
    assert folder.parent == Path("/tmp")
    assert len(os.fsencode(folder / "vllm")) < 100
    folder.rmdir()
