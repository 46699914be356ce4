"""Base models from the Hugging Face hub: whether one is within reach, and its files."""

from __future__ import annotations

from pathlib import Path

from tasks.models.base import ModelError

WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
UNWANTED = ["original/*", "onnx/*", "consolidated*"]  # the same weights again, in other layouts
ADVICE = "Check the name, the revision, the network, HF_TOKEN for gated models, and HF_HUB_OFFLINE."


def why_out_of_reach(name: str, revision: str | None) -> str | None:
    """Why the hub does not give `name`; None when it does, or when it lies in the hub's cache."""
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        if isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
            return None
    except HFValidationError as error:
        return f"{name!r} is no hub id: {error}"
    if constants.HF_HUB_OFFLINE:
        return _message(name, revision, "HF_HUB_OFFLINE is set and it is not in the hub's cache")
    try:
        HfApi().model_info(name, revision=revision, timeout=10)
    except Exception as error:  # whatever it is, the model cannot be fetched now
        return _message(name, revision, _first_line(error))
    return None


def fetch(name: str, revision: str | None) -> Path:
    """Folder in the hub's cache with the model's config, safetensors and tokenizer.

    Raises:
        ModelError: it is not in the cache and could not be downloaded.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED)
        )
    except Exception as error:  # network, disk, rights: each has a class of its own
        raise ModelError(f"Base model: {_message(name, revision, _first_line(error))}") from error


def _message(name: str, revision: str | None, found: str) -> str:
    what = f"{name!r}" + (f" at revision {revision!r}" if revision else "")
    return f"{what} is not a local folder, and the hub does not give it ({found}). {ADVICE}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
