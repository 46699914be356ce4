"""T1 (TRL 5224, verl 6719): the sampled ids were decoded and encoded again, and others were trained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records import Message
from tests.models.chats import FAMILIES, ids_of, renderer, tokenizer
from tests.regressions.episodes import played

USER = Message("user", "Begin.")


def spelled_out(family, text):
    """Ids of the same text, one for each byte: what no tokenizer would give."""
    return [i for character in text for i in ids_of(family, character)]


@pytest.mark.parametrize("family", FAMILIES)
async def test_ids_that_encode_otherwise_are_trained_as_sampled(family):
    sampled = spelled_out(family, "Guess again")
    assert sampled != ids_of(family, "Guess again")
    assert tokenizer(family).decode(sampled) == "Guess again"
    trajectory = await played(family, [sampled, sampled, sampled])
    for turn in trajectory.turns:
        assert trajectory.token_ids[turn.start : turn.end] == (*sampled, renderer(family).stop_token_ids[0])
    assert trajectory.segment_starts == (0,)


@pytest.mark.parametrize("family", ["chatml", "qwen3"])
@given(data=st.data())
def test_what_follows_does_not_depend_on_how_the_reply_was_cut_into_tokens(family, data):
    text = data.draw(st.text(min_size=1, max_size=12))
    chat, messages = renderer(family), [USER, Message("assistant", text), USER]
    usual, odd = ids_of(family, text), spelled_out(family, text)
    assert chat.extension(messages, (), usual) == chat.extension(messages, (), odd) is not None
