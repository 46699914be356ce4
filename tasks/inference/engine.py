"""Which sampler a run uses, opened for as long as its flow needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tasks.inference.sampler import Sampler
from tasks.settings import InferenceSettings, ModelSettings


@asynccontextmanager
async def open_engine(
    model: ModelSettings, inference: InferenceSettings, base_folder: Path, log_file: Path
) -> AsyncIterator[Sampler]:
    """A sampler over the base model in `base_folder`, no adapter loaded yet.

    Yields at once, while the engine starts: `await sampler.ready()`, or `load_policy`, waits for it.

    Args:
        log_file: where a server's output goes.
    """
    if inference.engine == "vllm":
        from tasks.inference.vllm_command import loads_lora
        from tasks.inference.vllm_sampler import VllmSampler
        from tasks.inference.vllm_server import VllmServer

        rank = model.lora.rank if loads_lora(inference.weights) else None
        server = VllmServer(base_folder, inference, log_file, dtype=model.dtype, lora_rank=rank)
        async with server, VllmSampler(server) as vllm:
            yield vllm
    else:
        from tasks.inference.transformers_sampler import TransformersSampler

        async with TransformersSampler(base_folder, inference, dtype=model.dtype) as sampler:
            yield sampler
