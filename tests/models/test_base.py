"""Base models: what is wrong with one is said before anything is loaded, with what to do about it."""

import shutil
import subprocess
import sys

import pytest
from huggingface_hub import errors

from tasks.models import hub
from tasks.models.base import (
    BUILT_IN,
    ModelError,
    check_base_model,
    default_cache_dir,
    load_base_model,
    load_tokenizer,
    resolve_base_model,
)
from tests.tiny import make_tiny_model

HUB_ID = "nobody/nothing-0.1b"


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def hub_raises(monkeypatch):
    def patch(error):
        def model_info(*args, **kwargs):
            raise error

        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)

    return patch


def test_a_local_folder_is_its_own_model(tiny_model, tmp_path):
    assert check_base_model(str(tiny_model)) is None
    assert resolve_base_model(str(tiny_model), cache_dir=tmp_path) == tiny_model
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        (["config.json"], "config.json"),
        (["tokenizer.json"], "a tokenizer"),
        (["model.safetensors"], "weights as safetensors"),
        (["config.json", "model.safetensors"], "config.json, weights as safetensors"),
    ],
)
def test_a_folder_names_what_it_lacks(tiny_model, tmp_path, files, lacking):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    for file in files:
        (folder / file).unlink()
    assert check_base_model(str(folder)).endswith(f"it lacks {lacking}.")
    with pytest.raises(ModelError, match=f"it lacks {lacking}"):
        resolve_base_model(str(folder), cache_dir=tmp_path)


@pytest.mark.parametrize("name", ["./no/such", "/no/such", "~/no/such", "gpt", "a/b/c", ""])
def test_what_is_neither_a_folder_nor_a_hub_id_is_refused(name):
    assert "nor a hub id such as" in check_base_model(name)


def test_a_revision_of_what_has_none_is_refused(tiny_model):
    for name in (str(tiny_model), BUILT_IN):
        assert "leave it out" in check_base_model(name, "main")


def test_a_hub_model_offline_is_refused_with_the_reason(offline, tmp_path):
    with pytest.raises(ModelError, match=rf"{HUB_ID}.*HF_HUB_OFFLINE is set"):
        resolve_base_model(HUB_ID, cache_dir=tmp_path)


def test_a_hub_model_in_the_hubs_cache_needs_no_network(offline, tiny_model, tmp_path):
    repo = tmp_path / "hub" / f"models--{HUB_ID.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("c0ffee")
    snapshot = shutil.copytree(tiny_model, repo / "snapshots" / "c0ffee")
    assert check_base_model(HUB_ID) is None
    assert resolve_base_model(HUB_ID, cache_dir=tmp_path) == snapshot
    assert "at revision 'v2'" in check_base_model(HUB_ID, "v2")
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="lacks weights as safetensors"):
        resolve_base_model(HUB_ID, cache_dir=tmp_path)


@pytest.mark.parametrize("error", [ConnectionError("no route\nsecond line"), OSError("no route")])
def test_what_the_hub_answers_is_passed_on(hub_raises, error):
    hub_raises(error)
    assert "Error: no route). Check the name" in check_base_model(HUB_ID)


def test_a_download_that_fails_is_a_model_error(monkeypatch):
    def snapshot_download(*args, **kwargs):
        raise errors.LocalEntryNotFoundError("disk full")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match="LocalEntryNotFoundError: disk full"):
        hub.fetch(HUB_ID, None)


def test_checking_a_model_imports_nothing_heavy(tiny_model):
    code = (
        "import sys; from tasks.models.base import check_base_model; import tasks.models.chat, "
        f"tasks.models.adapters; assert check_base_model({str(tiny_model)!r}) is None; "
        "assert not {'torch', 'transformers', 'peft', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_cache_is_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("ROLLMILL_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.setenv("ROLLMILL_CACHE", "")
    assert default_cache_dir().parts[-2:] == (".cache", "rollmill")


def test_another_chat_template_replaces_the_tokenizers_own(tiny_model, tmp_path):
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages[0].content }} é", encoding="utf-8")
    assert load_tokenizer(tiny_model, str(file)).chat_template == "{{ messages[0].content }} é"
    with pytest.raises(ModelError, match=r"model\.chat_template '.*none\.jinja' cannot be read"):
        load_tokenizer(tiny_model, str(tmp_path / "none.jinja"))


def test_damaged_files_are_named_with_their_folder(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "config.json").write_text('{"model_type": "of tomorrow"}')
    with pytest.raises(ModelError, match=f"The model in {folder} cannot be loaded"):
        load_base_model(folder)


def test_the_tiny_model_is_drawn_from_its_seed(tmp_path):
    one, again, other = (make_tiny_model(tmp_path / str(n), seed=seed) for n, seed in enumerate((1, 1, 2)))
    digests = [(folder / "model.safetensors").read_bytes() for folder in (one, again, other)]
    assert digests[0] == digests[1] != digests[2]
