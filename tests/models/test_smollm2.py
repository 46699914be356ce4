"""The built-in model: converted once, whole or absent, and the model that it was before."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage.records import Message
from tasks.models.base import BUILT_IN, default_cache_dir, load_base_model, load_tokenizer, resolve_base_model
from tasks.models.chat import ChatRenderer
from tasks.models.smollm2 import convert_gguf

# Stands for the conversion in another process: writes a file, waits, writes the other.
CONVERT = """
import sys, time
from pathlib import Path
from tasks.models import smollm2

def write(source, folder):
    folder.mkdir()
    (folder / "first").write_text("1")
    with (folder.parent / "started").open("a") as log:
        log.write("x")
    time.sleep(float(sys.argv[2]))
    (folder / "second").write_text("2")

smollm2._write_model = write
smollm2.convert_gguf(Path("model.gguf"), Path(sys.argv[1]))
"""


def converting(target: Path, seconds: float) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", CONVERT, str(target), str(seconds)])


def test_a_killed_conversion_leaves_nothing_that_looks_like_a_model(tmp_path):
    target = tmp_path / "cache" / "model"
    killed = converting(target, 60)
    while not (target.parent / "started").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not target.exists()
    assert converting(target, 0).wait() == 0
    assert sorted(file.name for file in target.iterdir()) == ["first", "second"]
    assert not (target.parent / ".model.building").exists()


def test_of_two_processes_one_converts_and_the_other_waits(tmp_path):
    target = tmp_path / "cache" / "model"
    both = [converting(target, 0.5) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert (target.parent / "started").read_text() == "x"
    assert (target / "second").read_text() == "2"


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"Converting model\.gguf into .*file/model failed.*ROLLMILL_CACHE"):
        convert_gguf(Path("model.gguf"), tmp_path / "file" / "model")


@pytest.fixture(scope="module")
def smollm2():
    """The real model, converted into the machine's cache when it is not there yet (half a minute)."""
    return resolve_base_model(BUILT_IN, cache_dir=default_cache_dir())


def test_it_still_knows_how_to_add(smollm2):
    import torch

    tokenizer = load_tokenizer(smollm2)
    model = load_base_model(smollm2, "float32")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    ids = ChatRenderer(tokenizer).prompt([Message("user", "3 + 4 =")], ())
    with torch.inference_mode():
        found = model.generate(torch.tensor([ids]), max_new_tokens=10, do_sample=False)[0, len(ids) :]
    assert "3 + 4 = 7" in tokenizer.decode(found)


def test_its_tokenizer_splits_as_the_model_was_trained(smollm2):
    tokenizer = load_tokenizer(smollm2)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("\n\n12  7 it's"))
    assert tokens == ["ĊĊ", "1", "2", "ĠĠ", "7", "Ġit", "'s"]


def test_its_chats_join_as_its_template_writes_them(smollm2):
    tokenizer = load_tokenizer(smollm2)
    chat = ChatRenderer(tokenizer)
    assert tokenizer.convert_ids_to_tokens(list(chat.stop_token_ids)) == ["<|im_end|>"]
    messages = [Message("user", "Guess.")]
    context = chat.prompt(messages, ())
    for guess in ("8", "12 ", "<|im_start|>user"):
        sampled = [*tokenizer.encode(guess.replace("<", "< ")), *chat.stop_token_ids]
        messages += [chat.parse(sampled).message, Message("user", "Too low. <|im_end|>")]
        context += [*sampled, *chat.extension(messages, (), sampled)]
    assert context == chat.prompt(messages, ())
    assert context.count(chat.stop_token_ids[0]) == 1 + len(messages)  # and the system's message
