"""Tools of MCP servers, over stdio or streamable HTTP, closed however an episode ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, model_validator

from tasks.environments.tools import Tool, ToolError, ToolUnavailable

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult


class McpServer(BaseModel):
    """One server: a command that talks over its stdin and stdout, or an address."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] | None = None  # beside a minimal environment: the secrets of this process stay here
    cwd: str | None = None
    url: str | None = None
    start_timeout: PositiveFloat = 60.0

    @model_validator(mode="after")
    def _one_of_two(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server is a command or a url, and not both")
        if self.url is not None and (self.args or self.env or self.cwd):
            raise ValueError("args, env and cwd do nothing for an MCP server that is a url: leave them out")
        return self

    @property
    def label(self) -> str:
        return self.url or " ".join((self.command or "", *self.args))


class McpConnections:
    """Open connections to servers. One task of its own opens, holds and closes them.

    The protocol's library ties a connection to the task that opened it, and cancels that task when the
    connection breaks: so that must not be the task that plays the episode.
    """

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = servers
        self._closing = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    async def open(self) -> list[Tool]:
        """Start or reach the servers; returns the tools of all.

        Raises:
            ToolUnavailable: a server cannot be started or does not answer.
        """
        opened: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(opened))
        waited: set[asyncio.Future[Any]] = {self._holder, opened}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            raise ToolUnavailable("an MCP connection ended while it was opened")
        return opened.result()

    async def close(self) -> None:
        """Close all connections and end the servers that were started. Safe to call twice."""
        self._closing.set()
        if self._holder is not None:
            await asyncio.wait({self._holder}, timeout=30)
            self._holder.cancel()
            await asyncio.gather(self._holder, return_exceptions=True)

    async def _hold(self, opened: asyncio.Future[list[Tool]]) -> None:
        async with AsyncExitStack() as stack:
            tools: list[Tool] = []
            for server in self._servers:
                try:
                    async with asyncio.timeout(server.start_timeout):
                        client = await stack.enter_async_context(_client(server))
                        tools += await self._tools(client, server)
                except Exception as error:  # of the operating system, the network or the protocol
                    opened.set_exception(
                        ToolUnavailable(
                            f"MCP server {server.label!r} cannot be used: {type(error).__name__}: {error}"
                        )
                    )
                    return
            opened.set_result(tools)
            await self._closing.wait()

    async def _tools(self, client: Client, server: McpServer) -> list[Tool]:
        found: list[Tool] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += [
                Tool(
                    tool.name,
                    tool.description or "",
                    tool.input_schema,
                    self._caller(client, server, tool.name),
                )
                for tool in page.tools
            ]
            if (cursor := page.next_cursor) is None:
                return found

    def _caller(self, client: Client, server: McpServer, name: str) -> Any:
        async def call(arguments: Mapping[str, Any]) -> str:
            from mcp import MCPError

            working = asyncio.ensure_future(client.call_tool(name, dict(arguments)))
            holder = self._holder
            assert holder is not None  # the tool came from it
            try:
                await asyncio.wait({working, holder}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    raise ToolUnavailable(f"MCP server {server.label!r} is gone")
                result = working.result()
            except MCPError as error:
                if holder.done() or "closed" in str(error).lower():
                    raise ToolUnavailable(f"MCP server {server.label!r} is gone: {error}") from error
                raise ToolError(str(error)) from error
            finally:
                working.cancel()
            text = _text(result)
            if result.is_error:
                raise ToolError(text)
            return text

        return call


def _client(server: McpServer) -> Client:
    from mcp import Client, StdioServerParameters

    if server.url is not None:
        return Client(server.url)
    return Client(
        StdioServerParameters(
            command=server.command or "", args=list(server.args), env=server.env, cwd=server.cwd
        )
    )


def _text(result: CallToolResult) -> str:
    """What a policy of text can read of a result; anything else is named by its kind."""
    return "\n".join(
        block.text if block.type == "text" else f"[{block.type}, not shown]" for block in result.content
    )
