"""Sampling from a vLLM server: token ids both ways over /v1/completions, new weights without a restart."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tasks.inference.probe import TOLERANCES, check_policy
from tasks.inference.sampler import (
    NO_POLICY,
    Completion,
    InferenceError,
    PolicyWeights,
    SamplingParams,
    check_fits,
)
from tasks.inference.vllm_command import SERVED_NAME, compute_dtype
from tasks.inference.vllm_server import VllmServer

if TYPE_CHECKING:
    import httpx

ADAPTER_NAME = "adapter"
BACK_OFF = (0.5, 2.0, 5.0)  # seconds before each further attempt
CACHE_RESET_ATTEMPTS = 50  # 0.1 s apart: an aborted request holds its blocks until the engine's next step


class VllmSampler:
    """A `Sampler` over a server that `VllmServer` started; closes nothing but its own connections."""

    def __init__(self, server: VllmServer) -> None:
        self.policy_version = NO_POLICY
        self._server = server
        self._model = SERVED_NAME
        self._in_flight = 0
        settings = server.settings
        self._tolerance = settings.probe_tolerance or TOLERANCES[compute_dtype(server.dtype)]
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> VllmSampler:
        import httpx

        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=str(self._server.socket), limits=httpx.Limits(max_connections=None)
            ),
            base_url="http://vllm",
            timeout=httpx.Timeout(self._server.settings.request_timeout),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.aclose()

    async def ready(self) -> None:
        await self._server.ready()

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int) -> Completion:
        check_fits(prompt_ids, params, self._server.settings.max_model_len)
        choice = await self._complete(
            prompt_ids,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            seed=seed,
            stop_token_ids=list(params.stop_token_ids),
            ignore_eos=True,  # what ends a reply is in stop_token_ids, and nothing else
            logprobs=0,  # of the sampled token alone
            return_tokens_as_token_ids=True,  # spares vLLM the decoding
        )
        token_ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        if choice["finish_reason"] not in ("stop", "length") or len(token_ids) != len(logprobs):
            raise InferenceError(
                f"vLLM ended a request with {choice['finish_reason']!r}, {len(token_ids)} tokens and "
                f"{len(logprobs)} log-probabilities; see {self._server.log_file}."
            )
        return Completion(tuple(token_ids), tuple(logprobs), choice["finish_reason"])

    async def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        choice = await self._complete(token_ids, max_tokens=1, temperature=0.0, prompt_logprobs=0)
        entries = choice["prompt_logprobs"][1:]  # nothing stands before the first
        return [
            entry[str(token_id)]["logprob"] if entry else math.nan
            for token_id, entry in zip(token_ids[1:], entries, strict=True)
        ]

    async def load_policy(self, weights: PolicyWeights, version: int) -> None:
        await self.ready()
        if self._in_flight:
            raise InferenceError(
                f"Adapter {version} was to be loaded while {self._in_flight} requests were under way: their "
                "replies would come from two policies. Await them first."
            )
        self.policy_version = NO_POLICY  # until the probe says otherwise
        if self._server.lora_rank is None:
            await self._load_merged(weights.adapter_folder)
        else:
            await self._load_adapter(weights.adapter_folder)
        await self._reset_prefix_cache()
        await check_policy(self, weights, version, self._tolerance)
        self.policy_version = version

    async def _load_merged(self, adapter_folder: Path) -> None:
        from tasks.models.adapters import merged_weights

        with self._server.scratch() as folder:
            await asyncio.to_thread(merged_weights, self._server.model_folder, adapter_folder, folder)
            await self._post(
                "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            )

    async def _load_adapter(self, adapter_folder: Path) -> None:
        body = {"lora_name": ADAPTER_NAME, "lora_path": str(adapter_folder), "load_inplace": True}
        await self._post("/v1/load_lora_adapter", body)
        self._model = ADAPTER_NAME

    async def _reset_prefix_cache(self) -> None:
        for _ in range(CACHE_RESET_ATTEMPTS):
            if (await self._post("/reset_prefix_cache", {})).json()["success"]:
                return
            await asyncio.sleep(0.1)
        raise InferenceError(
            "vLLM would not reset its prefix cache after new weights were loaded: some request still holds "
            f"blocks of the old ones. See {self._server.log_file}."
        )

    async def _complete(self, prompt_ids: Sequence[int], **fields: Any) -> dict[str, Any]:
        body = {
            "model": self._model,
            "prompt": list(prompt_ids),
            "return_token_ids": True,
            "top_p": 1.0,
            "top_k": 0,
            **fields,
        }
        self._in_flight += 1
        try:
            response = await self._post("/v1/completions", body)
        finally:
            self._in_flight -= 1
        choice: dict[str, Any] = response.json()["choices"][0]
        if choice["prompt_token_ids"] != body["prompt"]:
            raise InferenceError(
                "vLLM answered another prompt than it was sent; is this its version 0.32 or later?"
            )
        return choice

    async def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """POST, again after a lost connection or a 5xx. Raises InferenceError for all that stays wrong."""
        import httpx

        assert self._client is not None, "the sampler is not open"
        for wait in (*BACK_OFF, None):
            try:
                response = await self._client.post(path, json=body)
            except httpx.TimeoutException as error:
                raise InferenceError(
                    f"vLLM did not answer {path} within {self._server.settings.request_timeout:g} s. Raise "
                    "inference.request_timeout, or lower rollouts.max_concurrency."
                ) from error
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return response
                problem = f"{response.status_code}: {_reason(response)}"
                if response.is_client_error:
                    raise InferenceError(f"vLLM refused {path} with {problem}")
            self._server.check_alive()  # says more than a lost connection does
            if wait is not None:
                await asyncio.sleep(wait)
        raise InferenceError(
            f"vLLM failed {path} {len(BACK_OFF) + 1} times, last with {problem}\n{self._server.log_tail()}"
        )


def _reason(response: httpx.Response) -> str:
    """vLLM's own message, which stands inside a JSON object where vLLM itself made the answer."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]
