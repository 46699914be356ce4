"""An MCP server for tests: `python -m tests.environments.mcp_server [PORT]`, stdio without a port."""

import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("test")


@server.tool()
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("as asked")


@server.tool()
def process_id() -> int:
    """Id of the server's process."""
    return os.getpid()


@server.tool()
def die() -> str:
    """End the server in the middle of the call."""
    os._exit(1)


@server.tool()
def secret() -> str:
    """What a secret of the caller's environment is here."""
    return os.environ.get("ROLLMILL_TEST_SECRET", "nothing")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
