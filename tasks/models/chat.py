"""Conversations to tokens and back, so that what was sampled is never encoded again.

The first prompt is rendered whole. After each reply only what *follows* the sampled tokens is rendered and
laid behind them; where the template renders the past differently now, there is nothing to lay behind, and
the caller begins a new segment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from storage.records import Message
from tasks.models.base import ModelError
from tasks.models.tool_calls import tool_call_format

THINKING = re.compile(r"\A\s*(?:<think>)?(.*?)</think>", re.DOTALL)
OUTSIDERS = frozenset({"user", "tool"})  # roles whose text comes from outside and must stay text

# Characters of Unicode's private use area stand for control tokens that are only text.
FIRST_SENTINEL, LAST_SENTINEL = 0xE000, 0xF8FF


@dataclass(frozen=True)
class ParsedReply:
    """A sampled reply as a message, and what was wrong with the tool calls in it."""

    message: Message
    errors: tuple[str, ...] = ()


class ChatRenderer:
    """Renders with one tokenizer's chat template. Raises ModelError when it has none."""

    def __init__(self, tokenizer: Any) -> None:
        template = tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if not template:
            raise ModelError(
                "The model's tokenizer has no chat template. Name a Jinja file in model.chat_template, or "
                "use an instruction-tuned model."
            )
        self._tokenizer = tokenizer
        self._parse_calls = tool_call_format(template)
        self._thinks = "</think>" in template
        # Ordinary added tokens (`<tool_call>`, `<think>`) steer a model just as special ones do.
        self._controls = {token.content: id_ for id_, token in tokenizer.added_tokens_decoder.items()}
        longest_first = sorted(map(re.escape, self._controls), key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(longest_first)})") if longest_first else re.compile(r"(?!)")
        self._end_of_turn = self._find_end_of_turn()
        eos = tokenizer.eos_token_id
        self.stop_token_ids = tuple(dict.fromkeys(i for i in (self._end_of_turn, eos) if i is not None))
        if not self.stop_token_ids:
            raise ModelError("The model's tokenizer has neither an end-of-turn nor an end-of-text token.")

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of the whole conversation, with the beginning of the reply that comes next."""
        return self._encode(*self._render(messages, tools, generation_prompt=True))

    def extension(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampled_ids: Sequence[int]
    ) -> list[int] | None:
        """Ids that follow `sampled_ids`, the last assistant message, up to the beginning of the next reply.

        Returns:
            None when the template renders what came before differently in the longer conversation.
        """
        last = max(n for n, message in enumerate(messages) if message.role == "assistant")
        whole, sentinels = self._render(messages, tools, generation_prompt=True)
        past, past_sentinels = self._render(messages[: last + 1], tools, generation_prompt=False)
        if past_sentinels.items() <= sentinels.items() and whole.startswith(past):
            end = self._tokenizer.convert_ids_to_tokens(self.stop_token_ids[0])
            place = past.rfind(end)
            if place < 0:
                return None
            tail = whole[place + len(end) :]
            closing = (
                [] if sampled_ids and sampled_ids[-1] in self.stop_token_ids else self.stop_token_ids[:1]
            )
            return [*closing, *self._encode(tail, sentinels)]
        return None

    def parse(self, sampled_ids: Sequence[int]) -> ParsedReply:
        """The reply as a message. Text is decoded from the whole sequence; the ids remain the truth."""
        ids = list(sampled_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        reasoning = None
        if self._thinks and (thought := THINKING.match(text)):
            reasoning, text = thought.group(1).strip(), text[thought.end() :].lstrip("\n")
        content, calls, errors = self._parse_calls(text)
        shown = None if calls and not content else content
        return ParsedReply(Message("assistant", shown, reasoning, calls), errors)

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, generation_prompt: bool
    ) -> tuple[str, dict[str, str]]:
        """Text of the conversation, and what the sentinels in it stand for: control tokens of outsiders."""
        sentinels = self._sentinels(messages)
        guarded = [
            replace(m, content=self._guard(m.content, sentinels)) if m.role in OUTSIDERS else m
            for m in messages
        ]
        try:
            text = self._tokenizer.apply_chat_template(
                [_as_dict(message) for message in guarded],
                tools=list(tools) or None,
                add_generation_prompt=generation_prompt,
                tokenize=False,
            )
        except Exception as error:  # a template may raise on roles or orders that it does not know
            roles = " ".join(message.role for message in messages)
            raise ModelError(f"The chat template cannot render a conversation of {roles}: {error}") from error
        return text, {sentinel: written for written, sentinel in sentinels.items()}

    def _sentinels(self, messages: Sequence[Message]) -> dict[str, str]:
        """Control tokens that outsiders wrote, each with a character that occurs nowhere else."""
        outside = [m.content for m in messages if m.role in OUTSIDERS and m.content]
        written = dict.fromkeys(found for text in outside for found in self._control.findall(text))
        if not written:
            return {}
        taken = set("".join(m.content or "" for m in messages))
        free = (chr(c) for c in range(FIRST_SENTINEL, LAST_SENTINEL) if chr(c) not in taken)
        return dict(zip(written, free, strict=False))

    def _guard(self, content: str | None, sentinels: Mapping[str, str]) -> str | None:
        if not sentinels or content is None:
            return content
        return self._control.sub(lambda found: sentinels[found.group()], content)

    def _encode(self, text: str, sentinels: Mapping[str, str]) -> list[int]:
        if not sentinels:
            return self._tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for piece in self._control.split(text):
            if piece in self._controls:
                ids.append(self._controls[piece])
            elif piece:
                for sentinel, written in sentinels.items():
                    piece = piece.replace(sentinel, written)
                ids += self._as_plain_text(piece)
        return ids

    def _as_plain_text(self, text: str) -> list[int]:
        """Ids of `text` in which no control token occurs, whatever it says."""
        # Control tokens are matched before anything else, so no piece handed over may hold one whole.
        ids: list[int] = []
        for part in self._control.split(text):
            pieces = [part[:1], part[1:]] if part in self._controls else [part]
            for piece in filter(None, pieces):
                ids += self._tokenizer.encode(piece, add_special_tokens=False)
        return ids

    def _find_end_of_turn(self) -> int | None:
        """The control token that the template writes behind an assistant's message."""
        said = "\x02said\x03"
        text, _ = self._render(
            [Message("user", "?"), Message("assistant", said)], (), generation_prompt=False
        )
        behind = text[text.rfind(said) + len(said) :]
        found = self._control.search(behind)
        return self._controls[found.group()] if found else None


def _as_dict(message: Message) -> dict[str, Any]:
    """The message as chat templates expect it: absent fields left out, arguments as objects."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields
