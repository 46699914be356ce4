"""LoRA adapters: made, stored as safetensors, loaded whole or refused, merged into plain weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.errors import RollmillError
from tasks.settings import LoraSettings

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PROBE_TEXT = "The quick brown fox counts to ten: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10. Then it rests, and asks why."
LISTED = 5  # names that an error message shows


class AdapterError(RollmillError):
    """An adapter does not fit the model that it is to be loaded into."""


def create_adapter(base_model: Any, settings: LoraSettings, seed: int) -> Any:
    """A trainable adapter around `base_model` (a peft model), float32, that changes nothing yet."""
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=_targets(settings.target_modules),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(base_model, config, autocast_adapter_dtype=True)


def save_adapter(model: Any, folder: Path, base_name: str) -> None:
    """Write weights and config into `folder`; the config names the base as the run does, not by its path."""
    model.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base_name
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card


def load_adapter(base_model: Any, folder: Path) -> Any:
    """The stored adapter around `base_model`, trainable.

    Raises:
        AdapterError: the folder holds no safetensors, or its keys are not those of the model.
    """
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    weights = _read(folder, load_file)
    config = LoraConfig.from_pretrained(str(folder))
    config.inference_mode = False  # peft stores adapters as finished ones
    config.base_model_name_or_path = None  # stored by name; peft would compare it with a path
    model = get_peft_model(base_model, config)
    expected = get_peft_model_state_dict(model, save_embedding_layers=False)
    _refuse_other_keys(folder, set(weights), set(expected))
    set_peft_model_state_dict(model, weights)
    return model


def merged_weights(base_folder: Path, adapter_folder: Path, out_folder: Path) -> None:
    """Write the base model with the adapter added in, W + scale * B A, as one float32 safetensors file.

    Raises:
        AdapterError: the adapter is not plain LoRA, or changes layers that the base does not have.
    """
    import torch
    from safetensors.torch import load_file, save_file

    config = json.loads((adapter_folder / CONFIG).read_text(encoding="utf-8"))
    if config.get("use_dora") or config.get("bias", "none") != "none":
        raise AdapterError(f"The adapter in {adapter_folder} is not plain LoRA and cannot be merged here.")
    rank, alpha = config["r"], config["lora_alpha"]
    scale = alpha / rank**0.5 if config.get("use_rslora") else alpha / rank
    lora = _read(adapter_folder, load_file)
    weights = {
        name: tensor.float()
        for file in sorted(base_folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }
    layers = {
        name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"): name.removesuffix(
            ".lora_A.weight"
        )
        for name in lora
        if name.endswith(".lora_A.weight")
    }
    _refuse_other_keys(
        adapter_folder, set(lora), {f"{stem}.lora_{half}.weight" for stem in layers.values() for half in "AB"}
    )
    if absent := [layer for layer in layers if f"{layer}.weight" not in weights]:
        raise AdapterError(
            f"The adapter in {adapter_folder} changes layers that {base_folder} does not have: "
            f"{_some(absent)}. It belongs to another base model."
        )
    with torch.no_grad():
        for layer, stem in layers.items():
            delta = lora[f"{stem}.lora_B.weight"].float() @ lora[f"{stem}.lora_A.weight"].float()
            weights[f"{layer}.weight"] += scale * delta
    out_folder.mkdir(parents=True, exist_ok=True)
    for file in base_folder.iterdir():
        if file.suffix in {".json", ".jinja", ".txt", ".model"} and "safetensors" not in file.name:
            shutil.copy(file, out_folder)
    save_file(weights, out_folder / "model.safetensors", metadata={"format": "pt"})


def probe_ids(tokenizer: Any) -> list[int]:
    """The fixed tokens by which a sampler's weights are compared with the trainer's."""
    return tokenizer.encode(PROBE_TEXT, add_special_tokens=False)


def probe_logprobs(model: Any, token_ids: Sequence[int]) -> list[float]:
    """Log-probability (nats, temperature 1) of each token but the first, given those before it."""
    import torch

    was_training = model.training
    model.eval()
    ids = torch.tensor([list(token_ids)], device=next(model.parameters()).device)
    with torch.inference_mode():
        logprobs = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
        found = logprobs.gather(-1, ids[0, 1:, None])[:, 0]
    model.train(was_training)
    return found.tolist()


def _read(folder: Path, load_file: Any) -> dict[str, Any]:
    file = folder / WEIGHTS
    if not file.is_file():
        raise AdapterError(f"{folder} holds no {WEIGHTS}; adapters in other formats are not loaded.")
    try:
        return load_file(file)
    except Exception as error:  # safetensors has one error class, not exported under a stable name
        raise AdapterError(f"{file} cannot be read: {error}.") from error


def _refuse_other_keys(folder: Path, found: set[str], expected: set[str]) -> None:
    if found == expected:
        return
    unknown, missing = sorted(found - expected), sorted(expected - found)
    raise AdapterError(
        f"The adapter in {folder} does not fit the model: {len(unknown)} unknown keys ({_some(unknown)}), "
        f"{len(missing)} missing keys ({_some(missing)})."
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (", …" if len(names) > LISTED else "") if names else "none"


def _targets(wanted: str | tuple[str, ...]) -> str | list[str]:
    return wanted if isinstance(wanted, str) else list(wanted)
