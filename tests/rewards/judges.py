"""A judge's endpoint that answers what a test wants, over real HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: a completion with `text`, or an error status."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class JudgeServer:
    """Answers the n-th request with `script(n, request)`; remembers what it was sent."""

    def __init__(self, script: Callable[[int, dict[str, Any]], Answer]) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def judge_server(script: Callable[[int, dict[str, Any]], Answer]) -> Iterator[JudgeServer]:
    state = JudgeServer(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": []}, {})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                state.requests.append(request)
                state.keys.add(self.headers.get("Authorization"))
                number = len(state.requests) - 1
                state.in_flight += 1
                state.most_in_flight = max(state.most_in_flight, state.in_flight)
            answer = state.script(number, request)
            time.sleep(answer.seconds)
            with state.lock:
                state.in_flight -= 1
            if answer.status != 200:
                self._send(answer.status, {"error": {"message": "no"}}, answer.headers)
                return
            self._send(200, _completion(request["model"], answer.text), answer.headers)

        def _send(self, status: int, document: dict[str, Any], headers: dict[str, str]) -> None:
            body = json.dumps(document).encode()
            try:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client gave up waiting

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _completion(model: str, text: str) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


def verdicts(scores: dict[str, Any]) -> str:
    """A reply with these scores by label."""
    entries = [{"trajectory": k, "explanation": f"because {k}", "score": v} for k, v in scores.items()]
    return json.dumps({"scores": entries})
