"""Control tokens, and how text that only *spells* one stays text.

A tokenizer turns `<|im_end|>` into the control token wherever it stands, so that a web page or a user could
close a turn and open the assistant's (transformers 29279). Here what they wrote is replaced by stand-ins
before the chat template sees it. Then the real control tokens get secret names, the stand-ins become text
again, and a twin of the tokenizer, which knows control tokens under the secret names alone, encodes all of it
in one go: for any other text it gives the same ids as the tokenizer itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from secrets import token_hex
from typing import Any

from tasks.models.base import ModelError


class ControlTokens:
    """A tokenizer's control tokens: all that were added to its vocabulary, special or not.

    `<tool_call>` and `<think>` are ordinary added tokens, and steer a model just as special ones do. Raises
    ModelError for a tokenizer that the `tokenizers` library cannot run.
    """

    def __init__(self, tokenizer: Any) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise ModelError(
                f"The model's tokenizer ({type(tokenizer).__name__}) has no fast version. Save one beside "
                "the model, as tokenizer.json."
            )
        # Some tokenizers add runs of blanks; those steer nothing, and indented text is to keep them.
        added = {id_: token for id_, token in tokenizer.added_tokens_decoder.items() if token.content.strip()}
        # Drawn at random and never shown, so that no text can hold one by chance or by intent.
        secret = token_hex(16)
        self.ids: dict[str, int] = {token.content: id_ for id_, token in added.items()}
        self._tokenizer = tokenizer
        self._secret = secret
        self._names = {written: f"<{secret}n{id_:08d}>" for written, id_ in self.ids.items()}
        self._stand_ins = {written: f"<{secret}t{id_:08d}>" for written, id_ in self.ids.items()}
        self._written = {stand_in: written for written, stand_in in self._stand_ins.items()}
        self._any = _one_of(list(added.values()))
        self._special = _one_of([token for token in added.values() if token.special])
        self._stand_in_or_any = re.compile(f"<{secret}t\\d{{8}}>|{self._any.pattern}")

    def first_in(self, text: str) -> str | None:
        """The first control token that stands in `text`."""
        found = self._any.search(text)
        return found.group() if found else None

    def guard(self, text: str, *, special_only: bool = False) -> str:
        """`text` with stand-ins for the control tokens that it spells, all of them or only special ones."""
        pattern = self._special if special_only else self._any
        return pattern.sub(lambda found: self._stand_ins[found.group()], text)

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text, in which stand-ins are what they stand for, as text."""
        if self._secret not in text:
            ids = self._tokenizer.encode(text, add_special_tokens=False)
            if self._holds_what_is_written(ids, text):
                return ids
        renamed = self._stand_in_or_any.sub(
            lambda found: self._written.get(found.group()) or self._names[found.group()], text
        )
        return self._twin.encode(renamed, add_special_tokens=False).ids

    def _holds_what_is_written(self, ids: Sequence[int], text: str) -> bool:
        """Whether `ids` hold as many control tokens as `text` does.

        A tokenizer that normalises text may find more: `＜think＞`, which nobody guarded, becomes `<think>`.
        """
        unknown = self._tokenizer.unk_token_id  # stands for characters of any text
        counted = set(self.ids.values()) - {unknown}
        written = sum(self.ids[found] in counted for found in self._any.findall(text))
        return sum(id_ in counted for id_ in ids) == written

    @cached_property
    def _twin(self) -> Any:
        """The tokenizer with secret names for its control tokens, in its vocabulary as well."""
        from tokenizers import Tokenizer

        names = self._names
        description = json.loads(self._tokenizer.backend_tokenizer.to_str())
        description |= {"truncation": None, "padding": None, "post_processor": None}
        for token in description["added_tokens"]:
            if token["content"] in names:
                token["content"] = names[token["content"]]
                token["single_word"] = False  # where it stands alone was decided when it was renamed
        model = description["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {names.get(token, token): id_ for token, id_ in model["vocab"].items()}
        else:  # Unigram: a list of tokens with their scores
            model["vocab"] = [[names.get(token, token), score] for token, score in model["vocab"]]
        if "merges" in model:  # a merge that spells a control token would make one of plain text
            model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in names]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        return Tokenizer.from_str(json.dumps(description))


def _one_of(tokens: Sequence[Any]) -> re.Pattern[str]:
    """Matches any of `tokens` where a tokenizer does, the longest first; with none of them, nothing."""
    alternatives = [
        rf"(?<!\w){re.escape(token.content)}(?!\w)" if token.single_word else re.escape(token.content)
        for token in sorted(tokens, key=lambda token: len(token.content), reverse=True)
    ]
    return re.compile("|".join(alternatives) or r"(?!)")
