"""Adapters: deterministic, loadable, refused when they do not fit, and merged as peft merges them."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.models.adapters import (
    AdapterError,
    create_adapter,
    load_adapter,
    merged_weights,
    probe_ids,
    probe_logprobs,
    save_adapter,
)
from tasks.models.base import load_base_model, load_tokenizer
from tasks.settings import LoraSettings


@pytest.fixture
def adapter(tiny_model, tmp_path):
    """A stored adapter that changes the model: B is not zero."""
    model = create_adapter(load_base_model(tiny_model), LoraSettings(rank=4, alpha=8), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    save_adapter(model, tmp_path / "adapter", "tiny")
    return tmp_path / "adapter"


@pytest.fixture
def ids(tiny_model):
    return probe_ids(load_tokenizer(tiny_model))


def test_a_new_adapter_changes_nothing_and_is_drawn_from_its_seed(tiny_model, ids):
    base = load_base_model(tiny_model)
    before = probe_logprobs(base, ids)
    first, again, other = (
        create_adapter(load_base_model(tiny_model), LoraSettings(), seed=seed) for seed in (3, 3, 4)
    )
    assert probe_logprobs(first, ids) == pytest.approx(before, abs=1e-6)
    a, b, c = (dict(m.named_parameters()) for m in (first, again, other))
    name = next(name for name in a if "lora_A" in name)
    assert torch.equal(a[name], b[name])
    assert not torch.equal(a[name], c[name])


def test_a_stored_adapter_comes_back_trainable(tiny_model, adapter, ids):
    model = load_adapter(load_base_model(tiny_model), adapter)
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trainable
    assert all("lora_" in name for name in trainable)
    assert probe_logprobs(model, ids) != pytest.approx(
        probe_logprobs(load_base_model(tiny_model), ids), abs=1e-2
    )


def test_merging_equals_pefts_forward(tiny_model, adapter, ids, tmp_path):
    merged_weights(tiny_model, adapter, tmp_path / "merged")
    merged = probe_logprobs(load_base_model(tmp_path / "merged"), ids)
    assert merged == pytest.approx(
        probe_logprobs(load_adapter(load_base_model(tiny_model), adapter), ids), abs=1e-5
    )


@pytest.mark.parametrize("change", ["unknown", "missing"])
def test_keys_that_do_not_fit_refuse_the_load(tiny_model, adapter, tmp_path, change):
    """W1 (TRL 6688): a key prefix that does not match loaded nothing, and said nothing."""
    weights = load_file(adapter / "adapter_model.safetensors")
    name = next(iter(weights))
    if change == "unknown":
        weights[f"other.{name}"] = weights[name].clone()
    else:
        del weights[name]
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match=f"1 {change} keys"):
        load_adapter(load_base_model(tiny_model), adapter)
    with pytest.raises(AdapterError):
        merged_weights(tiny_model, adapter, tmp_path / "merged")


def test_only_safetensors_are_loaded(tiny_model, adapter):
    shutil.move(adapter / "adapter_model.safetensors", adapter / "adapter_model.bin")
    with pytest.raises(AdapterError, match=r"holds no adapter_model\.safetensors"):
        load_adapter(load_base_model(tiny_model), adapter)


def test_a_broken_file_is_named(tiny_model, adapter):
    (adapter / "adapter_model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(AdapterError, match="cannot be read"):
        load_adapter(load_base_model(tiny_model), adapter)
