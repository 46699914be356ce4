"""How the common model families write tool calls, read back from what they sampled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from storage.records import ToolCall

ToolCalls = tuple[str, tuple[ToolCall, ...], tuple[str, ...]]
"""Text without its calls, the calls that could be read, and what was wrong with the others."""

HERMES_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def parse_hermes(text: str) -> ToolCalls:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as Hermes and Qwen write it."""
    read = [
        _read_call(match.group(1), "arguments", f"call_{number}")
        for number, match in enumerate(HERMES_CALL.finditer(text))
    ]
    calls = tuple(call for call in read if isinstance(call, ToolCall))
    errors = tuple(error for error in read if isinstance(error, str))
    return HERMES_CALL.sub("", text).strip(), calls, errors


def parse_llama3(text: str) -> ToolCalls:
    """A reply that is one JSON object with `name` and `parameters`, as Llama 3.1 writes it."""
    body = text.removeprefix("<|python_tag|>").strip()
    if not body.startswith("{"):
        return text, (), ()
    call = _read_call(body, "parameters", "call_0")
    return ("", (call,), ()) if isinstance(call, ToolCall) else (text, (), (call,))


def parse_none(text: str) -> ToolCalls:
    """A template without tools: the text is the reply."""
    return text, (), ()


def tool_call_format(chat_template: str) -> Callable[[str], ToolCalls]:
    """The parser of the format that a chat template asks for."""
    if "<tool_call>" in chat_template:
        return parse_hermes
    if "<|python_tag|>" in chat_template or '"parameters"' in chat_template:
        return parse_llama3
    return parse_none


def _read_call(text: str, arguments_field: str, call_id: str) -> ToolCall | str:
    try:
        body: Any = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        return f"a tool call is not JSON ({error})"
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        return "a tool call is not an object with a name"
    arguments = body.get(arguments_field, {})
    if not isinstance(arguments, dict):
        return f"the {arguments_field} of the call to {body['name']} are not an object"
    return ToolCall(call_id, body["name"], json.dumps(arguments, ensure_ascii=False))
