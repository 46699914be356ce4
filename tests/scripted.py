"""A sampler that says what a test wants: the same interface as the real ones, no model behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasks.inference.sampler import Completion, PolicyWeights, SamplingParams


class ScriptedSampler:
    """Answers each request with `reply(prompt_ids, seed)`: text to encode, or ids; all logprobs are -0.5."""

    def __init__(self, tokenizer, reply: Callable[[Sequence[int], int], str | list[int]]) -> None:
        self.policy_version = 0
        self.requests: list[tuple[list[int], int]] = []
        self._tokenizer, self._reply = tokenizer, reply

    async def ready(self) -> None:
        pass

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int) -> Completion:
        self.requests.append((list(prompt_ids), seed))
        reply = self._reply(prompt_ids, seed)
        if isinstance(reply, str):
            reply = [*self._tokenizer.encode(reply, add_special_tokens=False), params.stop_token_ids[0]]
        ids = tuple(reply[: params.max_tokens])
        stopped = bool(ids) and ids[-1] in params.stop_token_ids
        return Completion(ids, (-0.5,) * len(ids), "stop" if stopped else "length")

    async def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        return [-1.0] * (len(token_ids) - 1)

    async def load_policy(self, weights: PolicyWeights, version: int) -> None:
        self.policy_version = version
