"""W1: an adapter pushed twice, under keys of another prefix, or in place of another (TRL 6688, vllm 39934).

Each of them gives fluent text. None may be sampled from: unknown or missing keys refuse the load, and what
was loaded must give the log-probabilities that the trainer gave. The same on a real vLLM, with its prefix
cache, is in tests/inference/test_samplers.py.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tasks.inference.sampler import NO_POLICY, InferenceError
from tasks.inference.transformers_sampler import TransformersSampler
from tasks.models.adapters import WEIGHTS, AdapterError, merged_weights
from tests.inference.conftest import PROBE, SETTINGS, make_policy


@pytest.fixture(scope="module")
def policy(tiny_model, tmp_path_factory):
    return make_policy(tiny_model, tmp_path_factory.mktemp("adapter") / "1", seed=1)


@pytest.fixture
async def sampler(tiny_model):
    async with TransformersSampler(tiny_model, SETTINGS) as sampler:
        yield sampler


def renamed(policy, folder, change):
    """The same adapter with its keys renamed by `change`."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(policy.weights.adapter_folder, folder)
    weights = load_file(folder / WEIGHTS)
    save_file({change(name): tensor for name, tensor in weights.items()}, folder / WEIGHTS)
    return replace(policy.weights, adapter_folder=folder)


async def test_an_adapter_pushed_twice_is_applied_once(sampler, policy):
    for version in (1, 2, 2):
        await sampler.load_policy(policy.weights, version)
        found = await sampler.prompt_logprobs(PROBE)
        assert found == pytest.approx(policy.weights.probe_logprobs, abs=1e-5)


@pytest.mark.parametrize("prefix", ["base_model.model.model.model.", "module.model."])
async def test_keys_that_match_no_layer_refuse_the_load(sampler, policy, tiny_model, tmp_path, prefix):
    wrong = renamed(policy, tmp_path / "wrong", lambda name: name.replace("base_model.model.model.", prefix))
    await sampler.load_policy(policy.weights, 1)
    with pytest.raises(AdapterError):
        await sampler.load_policy(wrong, 2)
    assert sampler.policy_version == NO_POLICY
    with pytest.raises(AdapterError):  # what vLLM would have been given
        merged_weights(tiny_model, wrong.adapter_folder, tmp_path / "merged")


async def test_another_steps_adapter_is_found_out(sampler, policy, tiny_model, tmp_path):
    other = make_policy(tiny_model, tmp_path / "2", seed=2)
    swapped = replace(policy.weights, adapter_folder=other.weights.adapter_folder)
    with pytest.raises(InferenceError, match="tolerance"):
        await sampler.load_policy(swapped, 1)
    assert sampler.policy_version == NO_POLICY
