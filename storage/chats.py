"""Messages as OpenAI's chat format has them, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storage.errors import StoreError
from storage.records import Message, ToolCall

ROLES = ("system", "developer", "user", "assistant", "tool")


def to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Chat messages; what a message does not have is left out."""
    return [_to_openai(message) for message in messages]


def from_openai(messages: Any, where: str) -> tuple[Message, ...]:
    """Messages of one chat. Raises StoreError that begins with `where` for what is no chat."""
    if not isinstance(messages, list) or not messages:
        raise StoreError(f"{where}: `messages` must be a list of chat messages with one at least.")
    return tuple(_from_openai(message, f"{where}, message {n}") for n, message in enumerate(messages))


def _to_openai(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        chat["reasoning_content"] = message.reasoning
    if message.tool_calls:
        chat["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        chat["name"] = message.name
    return chat


def _from_openai(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise StoreError(f"{where}: it must be an object with a role of {', '.join(ROLES)}.")
    try:
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        )
    except (KeyError, TypeError) as error:
        raise StoreError(f"{where}: a tool call needs an id and a function's name and arguments.") from error
    return Message(
        role=message["role"],
        content=_text(message.get("content"), where),
        reasoning=message.get("reasoning_content"),
        tool_calls=calls,
        tool_call_id=message.get("tool_call_id"),
        name=message.get("name"),
    )


def _text(content: Any, where: str) -> str | None:
    """Text of a message's content, which may be a list of text parts."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, Mapping) and p.get("type") == "text" for p in content):
        return "".join(part["text"] for part in content)
    raise StoreError(f"{where}: only text can be imported, and its content holds something else.")
