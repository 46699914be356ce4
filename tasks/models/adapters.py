"""LoRA adapters: made, stored as safetensors, loaded whole or refused, merged into plain weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.errors import RollmillError
from tasks.models.tensor_file import write_tensors
from tasks.settings import LoraSettings

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
HALF_A, HALF_B = ".lora_A.weight", ".lora_B.weight"
PROBE_TEXT = "The quick brown fox counts to ten: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10. Then it rests, and asks why."
LISTED = 5  # names that an error message shows

# Fields of an adapter's config that plain LoRA has, or that say nothing here. Any other one that is set
# changes the formula W + scale * B A, or what the weights are added to.
UNDERSTOOD = frozenset(
    {
        "r", "lora_alpha", "lora_dropout", "use_rslora", "fan_in_fan_out", "init_lora_weights",
        "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
        "peft_type", "task_type", "peft_version", "auto_mapping", "inference_mode",
        "base_model_name_or_path", "revision", "megatron_core", "qalora_group_size",
    }
)  # fmt: skip


class AdapterError(RollmillError):
    """An adapter does not fit the model that it is to be loaded into."""


def create_adapter(base_model: Any, settings: LoraSettings, seed: int) -> Any:
    """A trainable adapter around `base_model` (a peft model), float32, that changes nothing yet.

    A is drawn from `seed`, B is zero. The generators of torch are left as they were.

    Raises:
        AdapterError: the settings name layers that the model does not have, or that cannot be merged.
    """
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
        try:
            model = get_peft_model(base_model, config, autocast_adapter_dtype=True)
        except ValueError as error:  # no layer has such a name
            raise AdapterError(f"model.lora.target_modules {settings.target_modules!r}: {error}") from error
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    unfit = [name for name in names if ".lora_embedding_" in name]
    if base_model.config.get_text_config().tie_word_embeddings:
        unfit += [name for name in names if ".lm_head." in name]
    if unfit:
        raise AdapterError(
            f"model.lora.target_modules {settings.target_modules!r} puts an adapter on the embeddings, or on "
            f"an output layer that shares their weights ({_some(unfit)}): it could not be merged into plain "
            "weights. Name linear layers, or take `all-linear`."
        )
    return model


def save_adapter(model: Any, folder: Path, base_name: str) -> None:
    """Write weights and config into `folder`; the config names the base as the run does, not by its path."""
    model.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base_name
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card


def load_adapter(base_model: Any, folder: Path) -> Any:
    """The stored adapter around `base_model`, trainable, its weights float32.

    Raises:
        AdapterError: the folder holds no safetensors, or not plain LoRA, or its keys or shapes are not those
            that the model needs.
    """
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    weights = _read(folder, load_file)
    _read_config(folder)
    config = LoraConfig.from_pretrained(str(folder))
    config.inference_mode = False  # peft stores adapters as finished ones
    config.base_model_name_or_path = None  # stored by name; peft would compare it with a path
    model = get_peft_model(base_model, config)
    expected = get_peft_model_state_dict(model, save_embedding_layers=False)
    _refuse_other_keys(folder, set(weights), set(expected))
    if other := [name for name, tensor in expected.items() if tensor.shape != weights[name].shape]:
        raise AdapterError(
            f"The adapter in {folder} does not fit the model: other shapes in {_some(other)}. It belongs to "
            "another base model, or its adapter_config.json to another adapter."
        )
    set_peft_model_state_dict(model, weights)
    return model


def merged_weights(base_folder: Path, adapter_folder: Path, out_folder: Path) -> None:
    """Write the base model with the adapter added in, W + scale * B A, as one float32 safetensors file.

    Takes about a second for SmolLM2-135M, and little memory at any size.

    The scale is alpha / rank, or alpha / sqrt(rank) where the adapter says rsLoRA (arXiv 2312.03732). Tied
    output weights stay as the base stores them.

    Raises:
        AdapterError: the adapter is not plain LoRA, or changes layers that the base does not have.
    """
    import torch
    from safetensors.torch import load_file

    config = _read_config(adapter_folder)
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    lora = _read(adapter_folder, load_file)
    stems = [name.removesuffix(HALF_A) for name in lora if name.endswith(HALF_A)]
    both_halves = {stem + half for stem in stems for half in (HALF_A, HALF_B)}
    _refuse_other_keys(adapter_folder, set(lora), both_halves)
    layers = {f"{stem.removeprefix('base_model.model.')}.weight": stem for stem in stems}
    base = {name: tensor for file in _weight_files(base_folder) for name, tensor in load_file(file).items()}
    if absent := [layer for layer in layers if layer not in base]:
        raise AdapterError(
            f"The adapter in {adapter_folder} changes layers that {base_folder} does not have: "
            f"{_some(absent)}. It belongs to another base model."
        )
    plain = (torch.float32, torch.bfloat16, torch.float16)
    if quantised := [layer for layer in layers if base[layer].dtype not in plain]:
        raise AdapterError(
            f"The weights in {base_folder} are quantised ({_some(quantised)}), and an adapter cannot be "
            "merged into those. Take the model's unquantised form, or set inference.weights to `lora`."
        )

    @torch.no_grad()
    def merged(name: str) -> torch.Tensor:
        weights = base[name].float() if base[name].is_floating_point() else base[name]
        if name not in layers:
            return weights
        a, b = (lora[layers[name] + half].float() for half in (HALF_A, HALF_B))
        left, right = (a.T, b.T) if config.get("fan_in_fan_out") else (b, a)
        return torch.addmm(weights, left, right, alpha=scale)

    out_folder.mkdir(parents=True, exist_ok=True)
    for file in base_folder.iterdir():
        if file.suffix in {".json", ".jinja", ".txt", ".model"} and "safetensors" not in file.name:
            shutil.copy(file, out_folder)
    write_tensors(out_folder / "model.safetensors", base, merged)


def probe_ids(tokenizer: Any) -> list[int]:
    """The fixed tokens by which a sampler's weights are compared with the trainer's."""
    return tokenizer.encode(PROBE_TEXT, add_special_tokens=False)


def probe_logprobs(model: Any, token_ids: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Log-probability (nats) of each token but the first, given those before it: one fewer than the ids."""
    import torch

    was_training = model.training
    model.eval()
    ids = torch.tensor([list(token_ids)], device=next(model.parameters()).device)
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[0, :-1].float()
        logprobs = (logits / temperature).log_softmax(-1)
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


def _read_config(folder: Path) -> dict[str, Any]:
    """The adapter's config. Raises AdapterError when it is of another kind than plain LoRA."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterError(f"{folder / CONFIG} cannot be read: {error}.") from error
    set_fields = {name for name, value in config.items() if value and (name, value) != ("bias", "none")}
    unfit = sorted(set_fields - UNDERSTOOD)
    if config.get("peft_type") != "LORA":
        unfit.append(f"peft_type={config.get('peft_type')}")
    if config.get("init_lora_weights") not in (True, False, "gaussian", "orthogonal"):
        unfit.append("init_lora_weights")  # PiSSA and others change the base weights, too
    if unfit:
        raise AdapterError(f"The adapter in {folder} is not plain LoRA: its config sets {_some(unfit)}.")
    return config


def _weight_files(folder: Path) -> list[Path]:
    """The model's safetensors; files beside them hold the same weights in other layouts."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [folder / shard for shard in sorted(shards)]
    return [folder / "model.safetensors"]


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
