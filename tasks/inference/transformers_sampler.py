"""Sampling with transformers in this process: for tests with a tiny model, and for machines without vLLM.

Simple rather than fast. Requests that arrive together are generated as one left-padded batch with a KV cache.
Each draws from a generator of its own, so what else is in the batch changes its result by float noise alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tasks.inference.probe import TOLERANCES, check_policy
from tasks.inference.sampler import (
    NO_POLICY,
    Completion,
    InferenceError,
    PolicyWeights,
    SamplingParams,
    check_fits,
)
from tasks.settings import InferenceSettings

GATHER = 0.005  # seconds that the first request of a batch waits for others
LARGEST_BATCH = 64


@dataclass(frozen=True)
class _Request:
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    answer: asyncio.Future[Completion]


class TransformersSampler:
    """A `Sampler` over a model of its own in this process; `ready` loads it."""

    def __init__(self, base_folder: Path, settings: InferenceSettings, *, dtype: str = "auto") -> None:
        self.policy_version = NO_POLICY
        self._base_folder = base_folder
        self._settings = settings
        self._dtype = dtype
        self._model: Any = None
        self._loading = asyncio.Lock()
        self._pending: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TransformersSampler:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.cancel()
        self._model = None

    async def ready(self) -> None:
        from tasks.models.base import load_base_model

        async with self._loading:
            if self._model is None:
                self._model = await asyncio.to_thread(load_base_model, self._base_folder, self._dtype)
                self._model.eval()

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int) -> Completion:
        await self.ready()
        check_fits(prompt_ids, params, self._settings.max_model_len)
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._pending.append(_Request(tuple(prompt_ids), params, seed, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

    async def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        from tasks.models.adapters import probe_logprobs

        await self.ready()
        return await asyncio.to_thread(probe_logprobs, self._model, token_ids)

    async def load_policy(self, weights: PolicyWeights, version: int) -> None:
        from tasks.models.adapters import load_adapter

        await self.ready()
        if self._worker is not None and not self._worker.done():
            raise InferenceError(
                f"Adapter {version} was to be loaded while requests were under way: their replies would come "
                "from two policies. Await them first."
            )
        self.policy_version = NO_POLICY  # until the probe says otherwise
        base = self._model.unload() if hasattr(self._model, "unload") else self._model
        self._model = await asyncio.to_thread(load_adapter, base, weights.adapter_folder)
        self._model.eval()
        dtype = str(base.dtype).removeprefix("torch.")
        tolerance = self._settings.probe_tolerance or TOLERANCES[dtype]
        await check_policy(self, weights, version, tolerance)
        self.policy_version = version

    async def _work(self) -> None:
        """Answer what is pending, batch by batch, until nothing is."""
        await asyncio.sleep(GATHER)
        while self._pending:
            batch, self._pending = self._pending[:LARGEST_BATCH], self._pending[LARGEST_BATCH:]
            batch = [request for request in batch if not request.answer.done()]  # some were cancelled
            try:
                completions = await asyncio.to_thread(generate, self._model, batch)
            except Exception as error:
                failure = InferenceError(
                    f"transformers failed on a batch of {len(batch)} requests: {error!r}"
                )
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(failure)
            else:
                for request, completion in zip(batch, completions, strict=True):
                    if not request.answer.done():
                        request.answer.set_result(completion)


def generate(model: Any, requests: Sequence[_Request]) -> list[Completion]:
    """Sample a reply to each request, all in one batch; rows that have ended run along unread."""
    import torch

    device = next(model.parameters()).device
    width = max((len(request.prompt_ids) for request in requests), default=0)
    ids = torch.zeros(len(requests), width, dtype=torch.long)
    attended = torch.zeros_like(ids)
    for row, request in enumerate(requests):
        ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
        attended[row, width - len(request.prompt_ids) :] = 1
    ids, attended = ids.to(device), attended.to(device)
    positions = (attended.cumsum(-1) - 1).clamp(min=0)
    temperatures = torch.tensor([[request.params.temperature] for request in requests], device=device)
    draws = _draws(requests).to(device)
    replies: list[list[tuple[int, float]]] = [[] for _ in requests]
    ended: list[Literal["stop", "length"] | None] = [None] * len(requests)
    cache = None
    with torch.inference_mode():
        for step in range(draws.shape[1]):
            output = model(
                input_ids=ids,
                attention_mask=attended,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            logprobs = (output.logits[:, -1].float() / temperatures).log_softmax(-1)  # [batch, vocabulary]
            ids = _draw(logprobs, draws[:, step])
            sampled = zip(ids[:, 0].tolist(), logprobs.gather(-1, ids)[:, 0].tolist(), strict=True)
            for row, token in enumerate(sampled):
                if ended[row] is None:
                    replies[row].append(token)
                    ended[row] = _finish(requests[row].params, token[0], len(replies[row]))
            if all(ended):
                break
            attended = torch.cat([attended, attended.new_ones(len(requests), 1)], dim=-1)
            positions = positions[:, -1:] + 1
    return [
        Completion(
            tuple(token for token, _ in reply), tuple(logprob for _, logprob in reply), reason or "length"
        )
        for reply, reason in zip(replies, ended, strict=True)
    ]


def _finish(params: SamplingParams, token_id: int, length: int) -> Literal["stop", "length"] | None:
    if token_id in params.stop_token_ids:
        return "stop"
    return "length" if length == params.max_tokens else None


def _draws(requests: Sequence[_Request]) -> Any:
    """Uniform numbers in [0, 1), float64 [batch, most new tokens]: a row follows from its seed alone."""
    import torch

    steps = max((request.params.max_tokens for request in requests), default=0)
    rows = [
        torch.rand(steps, generator=torch.Generator().manual_seed(request.seed), dtype=torch.float64)
        for request in requests
    ]
    return torch.stack(rows) if rows else torch.zeros(0, 0)


def _draw(logprobs: Any, uniform: Any) -> Any:
    """Token ids [batch, 1] by inverting each row's distribution function at its uniform number [batch]."""
    import torch

    cumulative = logprobs.double().exp().cumsum(-1)
    found = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)
    return found.clamp(max=logprobs.shape[-1] - 1)
