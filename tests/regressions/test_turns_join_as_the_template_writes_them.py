"""T2 (TRL 5330, verl 6501, SkyRL 710): the newline after the end-of-turn token went missing between turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records import Message
from tests.models.chats import FAMILIES, ids_of, renderer, text_of, tokenizer
from tests.regressions.episodes import played

# A template may trim what it is given; what was sampled is not trimmed, so that the two differ there.
SAID = st.text("abc é7.", min_size=1, max_size=10).map(str.strip).filter(bool)
HEARD = st.text(max_size=10).filter(lambda text: "<" not in text)  # no control tokens, which T4 is about
BETWEEN = {
    "chatml": "\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n",
    "qwen3": "\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>user<|end_header_id|>\n\nGo on.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
}


@pytest.mark.parametrize("family", FAMILIES)
@given(replies=st.lists(SAID, min_size=1, max_size=3), heard=HEARD, is_cut=st.booleans())
def test_prompt_and_replies_and_extensions_are_the_whole_rendering(family, replies, heard, is_cut):
    chat = renderer(family)
    end = () if is_cut else chat.stop_token_ids[:1]
    messages = [Message("system", "Be brief."), Message("user", heard)]
    context = chat.prompt(messages, ())
    for reply in replies:
        sampled = [*ids_of(family, reply), *end]
        messages += [chat.parse(sampled).message, Message("user", heard)]
        context += [*sampled, *chat.extension(messages, (), sampled)]
    template = tokenizer(family).apply_chat_template(
        [{"role": m.role, "content": m.content} for m in messages],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert context == chat.prompt(messages, ()) == template


@pytest.mark.parametrize("family", FAMILIES)
async def test_what_joins_two_turns_is_read_and_not_trained(family):
    trajectory = await played(family, [ids_of(family, "one"), ids_of(family, "two")])
    first, second = trajectory.turns
    between = slice(first.end, second.start)
    assert text_of(family, list(trajectory.token_ids[between])) == BETWEEN[family]
    assert not any(trajectory.mask[between])
    assert all(trajectory.mask[first.start : first.end])
