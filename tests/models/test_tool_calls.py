"""T5 (TRL 4890): a call without arguments, not JSON, two in a turn; read or described, never raised."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.tool_calls import FORMATS, tool_call_format
from tests.models.chats import LLAMA3, QWEN3
from tests.tiny import CHATML

hermes, llama3, coder = FORMATS["hermes"], FORMATS["llama3_json"], FORMATS["qwen3_coder"]


def block(body):
    return f"<tool_call>\n{body}\n</tool_call>"


def named(read):
    return [(call.name, json.loads(call.arguments)) for call in read.calls]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (QWEN3, "hermes"),
        (LLAMA3, "llama3_json"),
        (CHATML, "none"),
        ("<tool_call>\n<function=example>\n<parameter=one>", "qwen3_coder"),
    ],
)
def test_the_template_says_which_format_it_is(template, name):
    assert tool_call_format(template) == name


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "now"}',
        '{"name": "now", "arguments": {}}',
        '{"name": "now", "arguments": null}',
        '{"name": "now", "arguments": "{}"}',
        '{"name": "now", "parameters": {}}',
    ],
)
def test_a_call_without_arguments_has_none(body):
    for read in (hermes(block(body)), llama3(body)):
        assert named(read) == [("now", {})]
        assert read.errors == ()
        assert read.content == ""


def test_two_calls_in_a_turn_are_two_and_the_text_around_them_stays():
    first, second = block('{"name": "a"}'), block('{"name": "b", "arguments": {"x": 1}}')
    read = hermes(f"First {first} then {second}")
    assert named(read) == [("a", {}), ("b", {"x": 1})]
    assert read.content == "First  then"
    assert len({call.id for call in read.calls}) == 2


def test_llama_writes_several_calls_one_after_the_other():
    read = llama3('<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"x": "é"}}\n')
    assert named(read) == [("a", {}), ("b", {"x": "é"})]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("now()", "not JSON"),
        ('{"name": "now", "arguments": {"a": 1}', "not JSON"),
        ('{"name": "now"}}', "something other"),
        ("[1]", "not an object with a name"),
        ('{"name": 3}', "not an object with a name"),
        ('{"name": "now", "arguments": [1]}', "not an object"),
        ('{"name": "now", "arguments": "soon"}', "not JSON"),
        ('{"name": "now", "arguments": {"a": NaN}}', "NaN is not JSON"),
        ('{"name": "now", "arguments": {"a": "\\ud800"}}', "surrogate"),
        ('{"name": "now", "arguments": {"a": ' + "9" * 5000 + "}}", "cannot be read"),
        ('{"name": "now", "arguments": {"a": ' + "[" * 100_000 + "}}", "too deeply"),
        ("", "not JSON"),
    ],
)
def test_a_call_that_cannot_be_read_is_described_and_kept_as_text(body, fault):
    read = hermes(f"Look: {block(body)}")
    assert read.calls == ()
    assert len(read.errors) == 1
    assert fault in read.errors[0]
    assert read.content == f"Look: {block(body)}"


def test_a_bad_call_takes_no_good_one_with_it():
    read = hermes(block("now()") + block('{"name": "a"}') + block("{"))
    assert named(read) == [("a", {})]
    assert len(read.errors) == 2
    assert read.content == block("now()") + block("{")
    read = llama3('{"name": "a", "parameters": {}} {"name": "b", ')
    assert named(read) == [("a", {})]
    assert read.content == '{"name": "b",'


def test_a_reply_that_was_cut_after_its_call_still_calls():
    assert named(hermes('<tool_call>{"name": "a"}')) == [("a", {})]
    assert hermes('<tool_call>{"name": "a", "argu').errors


def test_a_string_may_say_what_ends_a_call():
    arguments = {"text": "write </tool_call> <tool_call> here"}
    assert named(hermes(block(json.dumps({"name": "say", "arguments": arguments})))) == [("say", arguments)]


@pytest.mark.parametrize("text", ["<|python_tag|>", "<|python_tag|>now()", '{"name": now}'])
def test_llamas_calls_that_cannot_be_read_are_described_and_kept_as_text(text):
    read = llama3(text)
    assert (read.content, read.calls) == (text, ())
    assert "not JSON" in read.errors[0]


@pytest.mark.parametrize("text", ['{"answer": 3}', "3", "", " {", 'I say {"name": "a"}'])
def test_json_that_is_an_answer_is_no_call(text):
    read = llama3(text)
    assert (read.content, read.calls, read.errors) == (text, (), ())


def test_a_call_with_xml_parameters():
    parameters = "<parameter=text>\ntwo\nlines\n</parameter>\n<parameter=line>\n7\n</parameter>"
    body = f"<function=edit>\n{parameters}\n</function>"
    read = coder(f"Now. {block(body)}")
    assert named(read) == [("edit", {"text": "two\nlines", "line": 7})]
    assert read.content == "Now."
    assert coder(block("<function=edit>")).errors == (
        "the tool call cannot be read: it is not <function=NAME>…</function>",
    )


def test_the_same_reply_gives_the_same_ids_and_another_reply_others():
    """Nine letters and digits, as Mistral's templates ask for."""
    call = block('{"name": "a"}')
    first, again, other = (hermes(text + call).calls[0].id for text in ("x", "x", "y"))
    assert first == again != other
    assert len(first) == 9
    assert first.isalnum()


MARKS = ["<tool_call>", "</tool_call>", "<function=f>", "</function>", "<|python_tag|>"]
JSON_PIECES = ['{"name": "f"', ', "arguments": ', "{", "}", "[", '"', "\\", "\n", "null", "é"]


@pytest.mark.parametrize("name", list(FORMATS))
@given(pieces=st.lists(st.sampled_from([*MARKS, *JSON_PIECES]) | st.text(max_size=3)))
def test_nothing_that_is_sampled_raises_and_what_was_read_can_be_stored(name, pieces):
    text = "".join(pieces)
    read = FORMATS[name](text)
    for call in read.calls:
        assert isinstance(json.loads(call.arguments), dict)
        call.arguments.encode()
    if not read.calls and not read.errors:
        assert read.content == text
