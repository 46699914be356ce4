"""One engine of each kind for the whole session: starting vLLM takes half a minute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tasks.inference.sampler import PolicyWeights
from tasks.inference.transformers_sampler import TransformersSampler
from tasks.inference.vllm_sampler import VllmSampler
from tasks.inference.vllm_server import VllmServer
from tasks.models.adapters import create_adapter, probe_logprobs, save_adapter
from tasks.models.base import load_base_model
from tasks.settings import InferenceSettings, LoraSettings

CONTEXT = 512
RANK = 4
SETTINGS = InferenceSettings(max_model_len=CONTEXT, enforce_eager=True, kv_cache_gib=0.1)
PROBE = tuple(range(10, 60))


@dataclass(frozen=True)
class Policy:
    """An adapter as a trainer left it: what a sampler is given, and the trainer's own model."""

    weights: PolicyWeights
    model: Any


def make_policy(base: Path, folder: Path, seed: int) -> Policy:
    """A random adapter, large enough to change every log-probability."""
    import torch

    model = create_adapter(load_base_model(base, "float32"), LoraSettings(rank=RANK), seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.1, generator=generator)
    save_adapter(model, folder, "tiny")
    return Policy(PolicyWeights(folder, PROBE, tuple(probe_logprobs(model, PROBE))), model.eval())


@pytest.fixture(scope="session")
def policies(tiny_model, tmp_path_factory):
    """Two different adapters of the tiny model."""
    folder = tmp_path_factory.mktemp("adapters")
    return [make_policy(tiny_model, folder / str(seed), seed) for seed in (1, 2)]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def transformers_sampler(tiny_model):
    async with TransformersSampler(tiny_model, SETTINGS) as sampler:
        yield sampler


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_server(tiny_model, tmp_path_factory):
    """Weights come merged, as `auto` has it on a CPU."""
    async with VllmServer(tiny_model, SETTINGS, tmp_path_factory.mktemp("log") / "vllm.log") as server:
        await server.ready()
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_sampler(vllm_server):
    async with VllmSampler(vllm_server) as sampler:
        yield sampler


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_lora_sampler(tiny_model, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    async with (
        VllmServer(tiny_model, SETTINGS, log, lora_rank=RANK) as server,
        VllmSampler(server) as sampler,
    ):
        await sampler.ready()
        yield sampler
