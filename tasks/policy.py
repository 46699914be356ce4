"""The policy of a step, as it is served: the adapter's weights in the sampler, and proof that they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from storage.store import Store
from tasks.episodes.episode import Player
from tasks.inference.engine import open_engine
from tasks.inference.sampler import PolicyWeights, Sampler
from tasks.learner import base_folder
from tasks.models.base import load_tokenizer
from tasks.models.chat import ChatRenderer
from tasks.progress import progress
from tasks.run import Run


def policy_weights(store: Store, run: str, step: int) -> PolicyWeights:
    """The adapter of a step with the probe that its trainer computed when it was saved."""
    probe = store.read_manifest(run, step)["probe"]
    return PolicyWeights(store.adapter(run, step), tuple(probe["token_ids"]), tuple(probe["logprobs"]))


async def serve_step(run: Run, step: int, sampler: Sampler) -> None:
    """Have `sampler` serve the adapter of `step`. Raises InferenceError when its probe does not agree."""
    if sampler.policy_version != step:
        with progress("load weights"):
            await sampler.load_policy(policy_weights(run.store, run.adapter_of(step), step), step)


@asynccontextmanager
async def open_player(run: Run) -> AsyncIterator[Player]:
    """Start the engine that serves the run's policy. It starts up while other work goes on: await
    `player.sampler.ready()` before the first request."""
    model, inference = run.config.model, run.config.inference
    folder = base_folder(run)
    log_file = run.store.files.path(f"logs/{run.name}/inference.log")
    async with open_engine(model, inference, folder, log_file) as sampler:
        renderer = ChatRenderer(load_tokenizer(folder, model.chat_template))
        yield Player(sampler, renderer, inference.max_model_len)
