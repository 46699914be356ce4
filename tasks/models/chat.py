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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.records import Message, ToolCall
from tasks.models.base import ModelError
from tasks.models.control_tokens import ControlTokens
from tasks.models.tool_calls import FORMATS, tool_call_format

OUTSIDERS = frozenset({"user", "tool"})  # roles whose text comes from outside and must stay text
THINK, END_THINK = "<think>", "</think>"

# Templates that write today's date get this one, Llama 3's own default: a prompt is a function of its
# messages, and the members of a group that is collected over midnight share it.
TODAY = datetime(2024, 7, 26, tzinfo=UTC)


@dataclass(frozen=True)
class ParsedReply:
    """A sampled reply as a message, and what was wrong with the tool calls in it."""

    message: Message
    errors: tuple[str, ...] = ()


class ChatRenderer:
    """Renders with one tokenizer's chat template.

    `stop_token_ids` end a reply: first the template's end of turn, then the tokenizer's end of text and those
    of the model's generation_config.json. Raises ModelError for a tokenizer that cannot hold a chat.
    """

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
        self._template = template
        self._controls = ControlTokens(tokenizer)
        self._parse_calls = FORMATS[tool_call_format(template)]
        self._thinks = END_THINK in template
        opening = self._render([Message("user", "?")], (), generation_prompt=True)
        self._prompt_opens_thought = opening.rstrip().endswith(THINK)
        stops = (self._end_of_turn(), tokenizer.eos_token_id, *_generation_stops(tokenizer))
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys(i for i in stops if i is not None))
        if not self.stop_token_ids:
            raise ModelError(
                "The model's replies have no end: its chat template writes no control token behind them, and "
                "its tokenizer names no end of text. Name another Jinja file in model.chat_template."
            )
        written = tokenizer.convert_ids_to_tokens(list(self.stop_token_ids))
        self._stop = re.compile("|".join(map(re.escape, written)))

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of the whole conversation, with the beginning of the reply that comes next."""
        return self._controls.encode(self._render(messages, tools, generation_prompt=True))

    def extension(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampled_ids: Sequence[int]
    ) -> list[int] | None:
        """Ids that follow `sampled_ids`, the last assistant message, up to the beginning of the next reply.

        Where the reply was cut, they begin with the end of its turn; a stop token that it holds closes it.

        Returns:
            None when the template renders what came before differently in the longer conversation.
        """
        last = max(n for n, message in enumerate(messages) if message.role == "assistant")
        before = self._render(messages[:last], tools, generation_prompt=True)
        whole = self._render(messages, tools, generation_prompt=True)
        if not whole.startswith(before):
            return None
        sampled = self._controls.guard(self.decode(sampled_ids), special_only=True)
        closing = self._stop.match(whole, len(before) + len(sampled))
        if closing is None or not whole.startswith(sampled, len(before)):
            closing = self._closing_of_rewritten(messages[: last + 1], tools, before, whole)
        if closing is None:
            return None
        # Encoded together with the token before it, since some tokenizers treat a text's beginning apart.
        closed = self._controls.encode(whole[closing.start() :])
        return closed[1:] if sampled_ids and sampled_ids[-1] in self.stop_token_ids else closed

    def decode(self, sampled_ids: Sequence[int]) -> str:
        """Text of a reply without its stop token, decoded as one: a character may span several tokens."""
        ids = list(sampled_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def parse(self, sampled_ids: Sequence[int]) -> ParsedReply:
        """The reply as a message. The ids remain the truth."""
        reasoning, text = self._split_reasoning(self.decode(sampled_ids))
        read = self._parse_calls(text)
        content = None if read.calls and not read.content else read.content
        return ParsedReply(Message("assistant", content, reasoning, read.calls), read.errors)

    def _closing_of_rewritten(
        self, past: Sequence[Message], tools: Sequence[Mapping[str, Any]], before: str, whole: str
    ) -> re.Match[str] | None:
        """The end of the reply's turn in `whole`, where the template trims or formats what was sampled.

        None when the template leaves out part of the reply, or does not close its turn.
        """
        alone = self._render(past, tools, generation_prompt=False)
        closes = alone.startswith(before) and self._stop.search(alone, len(before)) is not None
        closing = self._stop.search(whole, len(before)) if closes else None
        if closing is None:
            return None
        turn = whole[len(before) : closing.start()]
        reply = self._guarded(past[-1])
        parts = (reply.content, reply.reasoning, *(call.name for call in reply.tool_calls))
        return closing if all(part.strip() in turn for part in parts if part) else None

    def _split_reasoning(self, text: str) -> tuple[str | None, str]:
        """A thought and what was said after it; a thought that was cut has nothing after it."""
        opened = text.lstrip().startswith(THINK)
        if not self._thinks or not (opened or self._prompt_opens_thought):
            return None, text
        thought, _, said = text.partition(END_THINK)
        return thought.lstrip().removeprefix(THINK).strip() or None, said.lstrip("\n")

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, generation_prompt: bool
    ) -> str:
        """Text of the conversation, with stand-ins for the control tokens that are only text in it."""
        try:
            return self._tokenizer.apply_chat_template(
                [_as_dict(self._guarded(message)) for message in messages],
                tools=list(tools) or None,
                chat_template=self._template,
                add_generation_prompt=generation_prompt,
                tokenize=False,
                strftime_now=TODAY.strftime,
            )
        except Exception as error:  # a template may raise on roles or orders that it does not know
            roles = " ".join(message.role for message in messages)
            raise ModelError(f"The chat template cannot render a conversation of {roles}: {error}") from error

    def _guarded(self, message: Message) -> Message:
        """The message in which outsiders spell no control token, and the policy opens and closes no turn."""
        guard = self._controls.guard
        if message.role in OUTSIDERS:
            return replace(
                message, content=guard(message.content or ""), name=message.name and guard(message.name)
            )
        if message.role == "assistant":
            return replace(
                message,
                content=guard(message.content or "", special_only=True),
                reasoning=message.reasoning and guard(message.reasoning, special_only=True),
                tool_calls=tuple(
                    replace(
                        call,
                        name=guard(call.name, special_only=True),
                        arguments=guard(_without_escapes(call.arguments), special_only=True),
                    )
                    for call in message.tool_calls
                ),
            )
        return message

    def _end_of_turn(self) -> int | None:
        """The control token that the template writes behind an assistant's message."""
        said = "\x02said\x03"
        text = self._render([Message("user", "?"), Message("assistant", said)], (), generation_prompt=False)
        _, found, behind = text.rpartition(said)
        if not found:
            raise ModelError(
                "The chat template does not write what the assistant says, so that no conversation can go "
                "on. Name another Jinja file in model.chat_template."
            )
        token = self._controls.first_in(behind)
        return None if token is None else self._controls.ids[token]


def _as_dict(message: Message) -> dict[str, Any]:
    """The message as chat templates expect it: absent fields left out, arguments as objects."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_call_as_dict(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _without_escapes(arguments: str) -> str:
    """JSON that spells every character as itself, so that an escape hides no control token."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _call_as_dict(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments  # an outside agent's record holds what its model wrote, JSON or not
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _generation_stops(tokenizer: Any) -> tuple[int, ...]:
    """End tokens in the generation_config.json beside the tokenizer; chat models often have several."""
    file = Path(tokenizer.name_or_path) / "generation_config.json"
    if not tokenizer.name_or_path or not file.is_file():  # it may come from no folder
        return ()
    ids = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    return tuple(ids) if isinstance(ids, list) else () if ids is None else (ids,)
