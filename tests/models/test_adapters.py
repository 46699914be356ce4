"""Adapters: deterministic, loadable, refused when they do not fit, and merged as peft merges them."""

import json
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
    return store(model, tmp_path / "adapter")


def store(model, folder):
    """Save a peft model with a B drawn at random in place of zeros."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    save_adapter(model, folder, "tiny")
    return folder


def change_config(adapter, **fields):
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


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
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trainable
    assert all("lora_" in name and p.dtype == torch.float32 for name, p in trainable.items())
    assert probe_logprobs(model, ids) != pytest.approx(
        probe_logprobs(load_base_model(tiny_model), ids), abs=1e-2
    )


def test_a_stored_adapter_names_its_base_as_the_run_does(adapter, tiny_model):
    config = (adapter / "adapter_config.json").read_text()
    assert json.loads(config)["base_model_name_or_path"] == "tiny"
    assert str(tiny_model) not in config


def test_a_bfloat16_base_gets_a_float32_adapter(tiny_model, adapter):
    for model in (
        create_adapter(load_base_model(tiny_model, "bfloat16"), LoraSettings(rank=4), seed=1),
        load_adapter(load_base_model(tiny_model, "bfloat16"), adapter),
    ):
        assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}


@pytest.mark.parametrize("rslora", [False, True])
def test_merging_equals_pefts_own_merge(tiny_model, adapter, tmp_path, rslora):
    change_config(adapter, use_rslora=rslora)
    merged_weights(tiny_model, adapter, tmp_path / "merged")
    ours = load_file(tmp_path / "merged" / "model.safetensors")
    theirs = load_adapter(load_base_model(tiny_model), adapter).merge_and_unload().state_dict()
    base = load_file(tiny_model / "model.safetensors")
    assert ours.keys() == base.keys()  # tied embeddings are stored once
    for name, tensor in ours.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=0)
    assert sum(not torch.equal(ours[name], base[name]) for name in base) == 2 * 7  # layers x linears


def test_merged_weights_are_a_model_that_gives_the_trainers_numbers(tiny_model, adapter, ids, tmp_path):
    merged_weights(tiny_model, adapter, tmp_path / "merged")
    merged = probe_logprobs(load_base_model(tmp_path / "merged"), ids)
    trainer = probe_logprobs(load_adapter(load_base_model(tiny_model), adapter), ids)
    assert merged == pytest.approx(trainer, abs=1e-5)
    assert probe_ids(load_tokenizer(tmp_path / "merged")) == ids


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_layers_that_store_weights_transposed_are_merged_transposed(tmp_path, ids):
    """GPT-2's linear layers hold (in, out); peft marks them with fan_in_fan_out."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=512, n_positions=256, n_embd=32, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    model = create_adapter(
        load_base_model(tmp_path / "gpt2"), LoraSettings(rank=4, target_modules=("c_attn",)), seed=1
    )
    adapter = store(model, tmp_path / "adapter")
    merged_weights(tmp_path / "gpt2", adapter, tmp_path / "merged")
    merged = probe_logprobs(load_base_model(tmp_path / "merged"), ids)
    assert merged == pytest.approx(probe_logprobs(model, ids), abs=1e-5)


def test_a_base_in_shards_is_merged_from_what_its_index_names(tiny_model, adapter, tmp_path):
    sharded = tmp_path / "sharded"
    load_base_model(tiny_model).save_pretrained(sharded, max_shard_size="100KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    # what some hub models have beside their shards
    save_file({"layers.0.wq.weight": torch.zeros(2)}, sharded / "consolidated.safetensors")
    for base in (tiny_model, sharded):
        merged_weights(base, adapter, tmp_path / f"merged-{base.name}")
    one, other = (
        load_file(tmp_path / f"merged-{base.name}" / "model.safetensors") for base in (tiny_model, sharded)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_quantised_weights_are_not_merged_as_if_they_were_plain(tiny_model, adapter, tmp_path):
    base = shutil.copytree(tiny_model, tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    save_file(weights | {name: weights[name].to(torch.float8_e4m3fn)}, base / "model.safetensors")
    with pytest.raises(AdapterError, match=r"quantised \(model\.layers\.0\.self_attn\.q_proj"):
        merged_weights(base, adapter, tmp_path / "merged")


def test_another_models_adapter_is_not_merged(tiny_model, adapter, tmp_path):
    base = shutil.copytree(tiny_model, tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    save_file({f"other.{name}": tensor for name, tensor in weights.items()}, base / "model.safetensors")
    with pytest.raises(AdapterError, match="belongs to another base model"):
        merged_weights(base, adapter, tmp_path / "merged")


def test_the_probe_is_the_models_own_log_probability_of_each_token_but_the_first(tiny_model, ids):
    model = load_base_model(tiny_model)
    for temperature in (1.0, 0.7):
        found = probe_logprobs(model, ids, temperature)
        assert len(found) == len(ids) - 1
        for place in (0, 7, len(found) - 1):
            logits = model(input_ids=torch.tensor([ids[: place + 1]])).logits[0, -1]
            expected = (logits / temperature).log_softmax(-1)[ids[place + 1]].item()
            assert found[place] == pytest.approx(expected, abs=1e-5)


def test_creating_and_probing_leave_no_trace(tiny_model, ids):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = create_adapter(load_base_model(tiny_model), LoraSettings(dropout=0.5), seed=1).train()
    assert probe_logprobs(model, ids) == probe_logprobs(model, ids)  # dropout is off meanwhile
    assert model.training
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
@pytest.mark.parametrize(
    ("targets", "found"),
    [(("q_porj",), "q_porj"), (("embed_tokens",), "embeddings"), (("lm_head",), "shares their weights")],
)
def test_layers_that_cannot_carry_an_adapter_are_named(tiny_model, targets, found):
    with pytest.raises(AdapterError, match=rf"model\.lora\.target_modules.*{found}"):
        create_adapter(load_base_model(tiny_model), LoraSettings(target_modules=targets), seed=1)


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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_dora", True),
        ("bias", "all"),
        ("rank_pattern", {"q_proj": 2}),
        ("alpha_pattern", {"q_proj": 2}),
        ("modules_to_save", ["lm_head"]),
        ("init_lora_weights", "pissa"),
        ("peft_type", "IA3"),
        ("a_field_of_a_later_peft", True),
    ],
)
def test_another_kind_of_adapter_is_refused_instead_of_merged_wrongly(
    tiny_model, adapter, tmp_path, field, value
):
    change_config(adapter, **{field: value})
    with pytest.raises(AdapterError, match=f"not plain LoRA: its config sets {field}"):
        load_adapter(load_base_model(tiny_model), adapter)
    with pytest.raises(AdapterError, match=f"not plain LoRA: its config sets {field}"):
        merged_weights(tiny_model, adapter, tmp_path / "merged")


def test_another_shape_is_refused_by_name(tiny_model, adapter):
    change_config(adapter, r=2)
    with pytest.raises(AdapterError, match=r"other shapes in .*lora_A"):
        load_adapter(load_base_model(tiny_model), adapter)
