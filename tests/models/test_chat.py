"""Rendering: as the template's own tokenisation, extended exactly, and read back."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records import Message, ToolCall
from tasks.models.base import ModelError, load_tokenizer
from tasks.models.chat import ChatRenderer
from tests.models.chats import END, FAMILIES, ids_of, renderer, text_of, tokenizer
from tests.tiny import CHATML, make_tokenizer

USER = Message("user", "How many?")
ORDINARY = st.text().filter(lambda text: "<" not in text)  # spells no control token
TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}


def as_dicts(messages):
    return [{"role": m.role, "content": m.content} for m in messages]


@pytest.mark.parametrize("family", FAMILIES)
@given(contents=st.lists(ORDINARY, min_size=1, max_size=4))
def test_ordinary_text_is_encoded_as_the_template_alone_would_be(family, contents):
    messages = [Message("system", "Be brief.")] + [
        Message(("user", "assistant")[n % 2], content) for n, content in enumerate(contents)
    ]
    expected = tokenizer(family).apply_chat_template(
        as_dicts(messages), add_generation_prompt=True, return_dict=False
    )
    assert renderer(family).prompt(messages, ()) == expected


def test_a_tokenizer_without_a_template_is_refused_with_the_setting_that_helps():
    with pytest.raises(ModelError, match=r"model\.chat_template"):
        ChatRenderer(make_tokenizer(chat_template=None))


def test_a_template_that_swallows_replies_is_refused():
    silent = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    with pytest.raises(ModelError, match="does not write what the assistant says"):
        ChatRenderer(make_tokenizer(silent))


def test_what_a_template_raises_names_the_roles():
    picky = "{% if messages | length > 2 %}{{ raise_exception('two are enough') }}{% endif %}" + CHATML
    with pytest.raises(ModelError, match="conversation of user assistant user: two are enough"):
        ChatRenderer(make_tokenizer(picky)).prompt([USER, Message("assistant", "3"), USER], ())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_templates_end_of_turn_comes_first_among_the_stop_tokens(family):
    stops = tokenizer(family).convert_ids_to_tokens(list(renderer(family).stop_token_ids))
    assert stops[0] == END[family]
    assert "<|im_end|>" in stops  # the tokenizer's end of text


def test_end_tokens_of_the_generation_config_stop_too(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    extra = load_tokenizer(folder).convert_tokens_to_ids("<|endoftext|>")
    for value in ([2, extra], extra):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
        assert ChatRenderer(load_tokenizer(folder)).stop_token_ids == (2, extra)


def test_a_date_in_the_template_is_always_the_same():
    dated = "{{ strftime_now('%d %b %Y') }}" + CHATML
    chat = ChatRenderer(made := make_tokenizer(dated))
    assert made.decode(chat.prompt([USER], ())).startswith("26 Jul 2024")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_that_was_cut_is_closed_first(family):
    chat, reply = renderer(family), ids_of(family, "three and")
    messages = [USER, Message("assistant", "three and"), USER]
    closed = chat.extension(messages, (), [*reply, chat.stop_token_ids[0]])
    assert chat.extension(messages, (), reply) == [chat.stop_token_ids[0], *closed]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_empty_reply_is_extended(family):
    chat = renderer(family)
    messages = [USER, chat.parse([]).message, USER]
    assert [*chat.prompt([USER], ()), *chat.extension(messages, (), [])] == chat.prompt(messages, ())


@pytest.mark.parametrize("said", [" 3 \n", "\n\n3", "3 "])
def test_a_template_that_trims_replies_is_extended_behind_what_was_sampled(said):
    chat = renderer("llama3")
    sampled = [*ids_of("llama3", said), chat.stop_token_ids[0]]
    added = chat.extension([USER, chat.parse(sampled).message, USER], (), sampled)
    assert text_of("llama3", added) == (
        "<|start_header_id|>user<|end_header_id|>\n\nHow many?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_a_template_that_formats_calls_anew_is_extended_behind_what_was_sampled():
    chat = renderer("qwen3")
    sampled = ids_of("qwen3", '<tool_call>{"arguments":{"of":"cats"},"name":"count"}</tool_call><|im_end|>')
    reply = chat.parse(sampled).message
    answer = Message("tool", "4", tool_call_id=reply.tool_calls[0].id)
    added = chat.extension([USER, reply, answer], [TOOL], sampled)
    assert text_of("qwen3", added) == (
        "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_turn_without_an_end_of_its_own_begins_a_segment():
    """The end of an *earlier* turn must not be taken for it: the reply would stand there twice."""
    open_ended = (
        "{% for m in messages %}{{ '<|im_start|>' + m.content }}"
        "{% if m.role == 'user' or m.content != 'open' %}{{ '<|im_end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
    )
    chat = ChatRenderer(made := make_tokenizer(open_ended))
    sampled = made.encode("open")
    assert chat.extension([USER, Message("assistant", "open"), USER], (), sampled) is None


def test_a_generation_prompt_that_history_does_not_repeat_begins_a_segment():
    hinting = CHATML.replace("assistant\n' }}", "assistant\nSure: ' }}")
    chat = ChatRenderer(made := make_tokenizer(hinting))
    assert chat.extension([USER, Message("assistant", "3"), USER], (), made.encode("3<|im_end|>")) is None


@pytest.mark.parametrize(
    ("sampled", "reasoning", "content"),
    [
        ("<think>\nlong\n</think>\n\n3", "long", "3"),
        ("<think>\n\n</think>\n\n3", None, "3"),
        ("<think>\nlong and cut", "long and cut", ""),
        ("3 </think> 4", None, "3 </think> 4"),
        ("3", None, "3"),
    ],
)
def test_thoughts_are_told_from_what_is_said(sampled, reasoning, content):
    reply = renderer("qwen3").parse(ids_of("qwen3", f"{sampled}<|im_end|>")).message
    assert (reply.reasoning, reply.content) == (reasoning, content)


def test_a_thought_that_the_prompt_opened_is_one():
    opening = CHATML.replace("assistant\n' }}", "assistant\n<think>\n' }}") + "{# </think> #}"
    chat = ChatRenderer(made := make_tokenizer(opening))
    for sampled, reasoning, content in (("a</think>\n\n3", "a", "3"), ("cut", "cut", "")):
        reply = chat.parse(made.encode(sampled)).message
        assert (reply.reasoning, reply.content) == (reasoning, content)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_whatever_is_sampled_can_be_read_and_rendered_again(family, data):
    chat = renderer(family)
    sampled = data.draw(st.lists(st.integers(0, len(tokenizer(family)) - 1), max_size=30))
    parsed = chat.parse(sampled)
    messages = [USER, parsed.message, USER]
    chat.prompt(messages, ())
    chat.extension(messages, (), sampled)


def test_arguments_that_are_not_json_reach_the_template_as_they_are():
    call = ToolCall("1", "count", "{of: cats")
    prompt = renderer("qwen3").prompt([USER, Message("assistant", None, tool_calls=(call,))], ())
    assert '{"name": "count", "arguments": "{of: cats"}' in text_of("qwen3", prompt)
