"""An ASGI middleware for vLLM's server that asks for the key on every route.

vLLM's own check covers paths that begin with /v1 and a few others, but not /invocations, which samples as
well (`GUARDED_PREFIX` in vllm/entrypoints/serve/middleware/authenticate.py, 0.32). Runs in vLLM's process.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]

OPEN = {"/health"}


class RequireKey:
    """Answers 401 to what lacks `Authorization: Bearer $VLLM_API_KEY`, websockets included."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._has_key(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _has_key(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self.expected)
