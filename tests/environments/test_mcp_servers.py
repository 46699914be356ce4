"""Tools of MCP servers: real servers, over stdio and HTTP, that leave no process behind."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from storage.records import ToolCall
from tasks.environments import ToolUnavailable
from tasks.environments.mcp_servers import McpConnections, McpServer
from tasks.environments.tools import Toolbox

MODULE = "tests.environments.mcp_server"
STDIO = McpServer(command=sys.executable, args=("-m", MODULE), cwd=str(Path(__file__).parents[2]))


def call(name, **arguments):
    return ToolCall(name, name, json.dumps(arguments))


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_server_over_stdio_answers_fails_and_is_ended(monkeypatch):
    monkeypatch.setenv("ROLLMILL_TEST_SECRET", "swordfish")
    connections = McpConnections([STDIO])
    toolbox = Toolbox(await connections.open())
    names = [schema["function"]["name"] for schema in toolbox.schemas]
    assert names == ["multiply", "fail", "process_id", "die", "secret"]
    calls = [
        call("multiply", a=6, b=7),
        call("multiply", a="six"),
        call("fail"),
        call("process_id"),
        call("secret"),
    ]
    messages, failed = await toolbox.run(calls)
    product, wrong, failure, process_id, secret = [message.content for message in messages]
    assert product == "42"
    assert wrong.startswith("Error: ")
    assert failure.startswith("Error: Error executing tool fail")
    assert secret == "nothing"  # the caller's environment stays with the caller
    assert failed == 2
    assert is_running(int(process_id))
    await connections.close()
    assert not is_running(int(process_id))
    await connections.close()


async def test_a_server_that_dies_is_no_fault_of_the_policy():
    connections = McpConnections([STDIO])
    toolbox = Toolbox(await connections.open(), timeout=20)
    with pytest.raises(ToolUnavailable, match="is gone"):
        await toolbox.run([call("die")])
    with pytest.raises(ToolUnavailable, match="is gone"):
        await toolbox.run([call("multiply", a=1, b=1)])
    await connections.close()


async def test_a_server_over_http_answers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, str(port), cwd=STDIO.cwd, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        connections = McpConnections([McpServer(url=f"http://127.0.0.1:{port}/mcp")])
        toolbox = Toolbox(await connections.open())
        messages, _ = await toolbox.run([call("multiply", a=6, b=7)])
        assert messages[0].content == "42"
        await connections.close()
    finally:
        server.terminate()
        await server.wait()


async def test_a_command_that_does_not_start_is_named():
    connections = McpConnections([McpServer(command="no-such-command-here")])
    with pytest.raises(ToolUnavailable, match="MCP server 'no-such-command-here' cannot be used"):
        await connections.open()
    await connections.close()


@pytest.mark.parametrize(
    "fields", [{}, {"command": "a", "url": "http://b"}, {"url": "http://b", "args": ("x",)}]
)
def test_a_server_is_a_command_or_a_url(fields):
    with pytest.raises(ValidationError):
        McpServer(**fields)
