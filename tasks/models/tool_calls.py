"""How the common model families write tool calls, read back from what they sampled.

A call that cannot be read is described, never raised: the episode tells the policy. Its text stays in the
content of the message. Arguments become strict JSON that can be stored: no NaN, no halves of surrogate pairs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from storage.records import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
BLANKS = re.compile(r"\s*")
END_OF_BLOCK = re.compile(rf"\s*(?:{CLOSE}|\Z)")  # a reply that was cut after its call still calls
LLAMA_CALL = re.compile(r'\{\s*"(?:name|type|function)"')  # other JSON is an answer
BETWEEN_LLAMA_CALLS = re.compile(r"[\s;,]*")
XML_CALL = re.compile(r"\s*<function=([^>\n]+)>(.*?)</function>", re.DOTALL)
XML_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


@dataclass(frozen=True)
class ReadCalls:
    """A reply's text without the calls that could be read, those calls, and what is wrong with the others."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    errors: tuple[str, ...] = ()


# Reads one call at a position of the text: its name, its arguments, and where it ends. Raises ValueError.
ReadCall = Callable[[str, int], tuple[str, dict[str, Any], int]]


def parse_hermes(text: str) -> ReadCalls:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as Hermes and Qwen write it."""
    return _parse_blocks(text, _read_json_call)


def parse_qwen3_coder(text: str) -> ReadCalls:
    """`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.

    The format has no types: a value that reads as JSON becomes that, and any other is a string.
    """
    return _parse_blocks(text, _read_xml_call)


def parse_llama3_json(text: str) -> ReadCalls:
    """A reply that is nothing but objects with `name` and `parameters`, as Llama 3 writes it."""
    body = text.strip().removeprefix(PYTHON_TAG).strip()
    if not text.lstrip().startswith(PYTHON_TAG) and not LLAMA_CALL.match(body):
        return ReadCalls(text)
    calls: list[ToolCall] = []
    position = 0
    while position < len(body) or not calls:
        try:
            name, arguments, end = _read_json_call(body, position)
            calls.append(_tool_call(name, arguments, text, len(calls)))
        except (ValueError, RecursionError) as error:
            unread = body[position:] if calls else text
            return ReadCalls(unread, tuple(calls), (_describe(error),))
        position = _end(BETWEEN_LLAMA_CALLS, body, end)
    return ReadCalls("", tuple(calls))


FORMATS: dict[str, Callable[[str], ReadCalls]] = {
    "hermes": parse_hermes,
    "qwen3_coder": parse_qwen3_coder,
    "llama3_json": parse_llama3_json,
    "none": ReadCalls,  # a template without tools: the text is the reply
}


def tool_call_format(chat_template: str) -> str:
    """Name of the format that a chat template asks for."""
    if "<function=" in chat_template:
        return "qwen3_coder"
    if OPEN in chat_template:
        return "hermes"
    if PYTHON_TAG in chat_template or '"parameters"' in chat_template:
        return "llama3_json"
    return "none"


def _parse_blocks(text: str, read: ReadCall) -> ReadCalls:
    """Reads what stands between `<tool_call>` and `</tool_call>`, once or several times."""
    kept: list[str] = []
    calls: list[ToolCall] = []
    errors: list[str] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        kept.append(text[position:start])
        try:
            name, arguments, end = read(text, start + len(OPEN))
            closing = END_OF_BLOCK.match(text, end)
            if closing is None:
                raise ValueError(f"something other than {CLOSE} follows it")
            calls.append(_tool_call(name, arguments, text, len(calls)))
            position = closing.end()
        except (ValueError, RecursionError) as error:
            errors.append(_describe(error))
            close = text.find(CLOSE, start)
            position = len(text) if close < 0 else close + len(CLOSE)
            kept.append(text[start:position])
    kept.append(text[position:])
    content = "".join(kept)
    return ReadCalls(content.strip() if calls else content, tuple(calls), tuple(errors))


def _read_json_call(text: str, position: int) -> tuple[str, dict[str, Any], int]:
    body, end = _JSON.raw_decode(text, _end(BLANKS, text, position))
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise ValueError("it is not an object with a name")
    # Models mix up the two names, and some write the object as a string once more.
    arguments = body.get("arguments", body.get("parameters"))
    if isinstance(arguments, str):
        arguments = _JSON.decode(arguments)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments for {body['name']} are not an object")
    return body["name"], arguments, end


def _read_xml_call(text: str, position: int) -> tuple[str, dict[str, Any], int]:
    found = XML_CALL.match(text, position)
    if found is None:
        raise ValueError("it is not <function=NAME>…</function>")
    return found[1], {key: _value(value) for key, value in XML_PARAMETER.findall(found[2])}, found.end()


def _value(text: str) -> Any:
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return text


def _tool_call(name: str, arguments: dict[str, Any], reply: str, number: int) -> ToolCall:
    """The id names the call within the conversation; nine letters and digits are what Mistral asks for."""
    written = json.dumps(arguments, ensure_ascii=False)
    try:
        f"{name}{written}".encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is no character") from None
    digest = hashlib.sha256(f"{number}\x1f{reply}".encode()).hexdigest()
    return ToolCall(digest[:9], name, written)


def _describe(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"the tool call is not JSON: {error}"
    if isinstance(error, RecursionError):
        return "the tool call is nested too deeply"
    return f"the tool call cannot be read: {error}"


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Where a match at `position` ends; for patterns that match the empty text, too."""
    found = pattern.match(text, position)
    assert found is not None
    return found.end()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)
