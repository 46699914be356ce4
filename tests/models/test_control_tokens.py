"""Guarded text is encoded by a twin of the tokenizer: the same ids, whatever kind of tokenizer it is."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.base import ModelError
from tasks.models.control_tokens import ControlTokens
from tests.models.chats import tokenizer
from tests.tiny import make_tokenizer

# Python and tokenizers agree on which of these are parts of words; on a few others, such as ², they do not.
WORD_AND_OTHER = st.characters(categories=["Lu", "Ll", "Lo", "Nd", "Po", "Zs"])
START, END = "<|im_start|>", "<|im_end|>"


def unigram():
    """SentencePiece's ways: control tokens in the vocabulary, a prefix before the first word alone."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [(chr(code), -5.0) for code in range(ord("!"), ord("~"))]
    pieces = [("<unk>", 0.0), (START, 0.0), (END, 0.0), ("▁", -2.0), ("▁a", -1.0), *letters]
    made = Tokenizer(models.Unigram(pieces, unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token=START, eos_token=END)


def swallowing():
    """Phi's way: a control token takes the whitespace behind it."""
    from tokenizers import AddedToken

    made = tokenizer("chatml").__class__(tokenizer_object=tokenizer("chatml").backend_tokenizer)
    made.add_tokens([AddedToken("<|end|>", rstrip=True, special=True), AddedToken("word", single_word=True)])
    return made


def whole_words():
    """Llama 3's way: a word that stands in the vocabulary is a token, whatever the merges say."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, END: 1, "<": 2, "|": 3, ">": 4, "im_end": 5, "a": 6, START: 7}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token=START, eos_token=END)


TOKENIZERS = {
    "byte-level": lambda: tokenizer("qwen3"),
    "unigram": unigram,
    "swallowing": swallowing,
    "whole words": whole_words,
}


@pytest.fixture(params=list(TOKENIZERS), scope="module")
def made(request):
    return TOKENIZERS[request.param]()


@given(
    pieces=st.lists(
        st.sampled_from([START, END, "<|end|>", "word", "<tool_call>", " ", "\n", "a", "  7"])
        | st.text(WORD_AND_OTHER, max_size=4),
        max_size=8,
    )
)
def test_twin_and_tokenizer_agree_on_rendered_text(made, pieces):
    controls = ControlTokens(made)
    text = "".join([START, *pieces])
    assert controls.encode(text) == made.encode(text, add_special_tokens=False)
    # The stand-in at the end makes the twin do the work.
    with_stand_in = controls.encode(text + START + controls.guard(END))
    expected = made.encode(text + START, add_special_tokens=False)
    assert with_stand_in[: len(expected)] == expected


@given(pieces=st.lists(st.sampled_from([START, END, "<|", "im_end", "|>", "<", " ", "a"]), min_size=1))
def test_guarded_text_holds_no_control_token(made, pieces):
    controls = ControlTokens(made)
    ids = controls.encode(controls.guard("".join(pieces)))
    allowed = {made.unk_token_id} - {None}  # what stands for characters that the vocabulary lacks
    assert not (set(ids) - allowed) & set(controls.ids.values())


@pytest.mark.parametrize("neighbour", ["²", "\u0301", "é", "_", "."])
def test_no_secret_name_is_ever_encoded_as_text(neighbour):
    made = swallowing()
    controls = ControlTokens(made)
    text = f"word{neighbour}word{START}word"
    assert made.decode(controls.encode(text + controls.guard(END))) == text + END


def test_only_special_tokens_are_guarded_where_that_is_asked():
    controls = ControlTokens(tokenizer("qwen3"))
    text = f"<tool_call>{END}"
    assert controls.guard(text, special_only=True).startswith("<tool_call>")
    assert END not in controls.guard(text, special_only=True)
    assert "<tool_call>" not in controls.guard(text)


def test_text_that_normalises_to_a_control_token_stays_text():
    from tokenizers import normalizers

    made = make_tokenizer(extra_tokens=("<think>",))
    made.backend_tokenizer.normalizer = normalizers.NFKC()
    disguised = "＜think＞"
    control = made.convert_tokens_to_ids("<think>")
    assert control in made.encode(disguised)
    ids = ControlTokens(made).encode(f"{START}{disguised}{END}")
    assert control not in ids
    assert made.decode(ids) == f"{START}<think>{END}"


def test_runs_of_blanks_are_no_control_tokens():
    """GPT-NeoX and Phi add them to the vocabulary, and indented text is to be encoded with them."""
    made = make_tokenizer(extra_tokens=("    ",))
    controls = ControlTokens(made)
    assert controls.guard("    x") == "    x"
    ids = controls.encode(f"{START}    x{controls.guard(END)}")
    assert made.convert_tokens_to_ids("    ") in ids


def test_a_tokenizer_without_a_fast_version_is_refused():
    class Slow:
        added_tokens_decoder: ClassVar = {}

    with pytest.raises(ModelError, match="has no fast version"):
        ControlTokens(Slow())
