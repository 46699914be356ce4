"""What every token source offers: exact ids in, exact ids and their log-probabilities out.

Nothing here decodes or encodes text. top_p and top_k are always off: the log-probabilities would be those of
another distribution than the trainer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from storage.errors import RollmillError

NO_POLICY = -1
"""`policy_version` before any adapter was loaded, and after loading one has failed."""


class InferenceError(RollmillError):
    """The sampler could not be started, did not answer, or does not serve the weights that it should."""


@dataclass(frozen=True)
class SamplingParams:
    temperature: float
    max_tokens: int
    stop_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Completion:
    """What was sampled. `token_ids` include the stop token that ended it, if one did."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms, one for each id, under the distribution sampled from: logits / temperature."""
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True)
class PolicyWeights:
    """An adapter's folder, and what its trainer says of a fixed string, so that loading it can be checked."""

    adapter_folder: Path
    probe_ids: tuple[int, ...]
    probe_logprobs: tuple[float, ...]
    """Of probe_ids[1:], at temperature 1: one value fewer than there are ids."""


def check_fits(prompt_ids: Sequence[int], params: SamplingParams, context: int) -> None:
    """Raise InferenceError unless the prompt and all new tokens fit; vLLM would cut the reply silently."""
    if not prompt_ids or len(prompt_ids) + params.max_tokens > context:
        raise InferenceError(
            f"A prompt of {len(prompt_ids)} tokens and {params.max_tokens} new ones do not fit into the "
            f"context of {context} tokens (inference.max_model_len); neither is ever cut."
        )


class Sampler(Protocol):
    """One policy at a time, asked by any number of coroutines of one event loop."""

    policy_version: int
    """Step of the adapter that answers; NO_POLICY when it is unknown what does."""

    async def ready(self) -> None:
        """Wait until requests can be answered. Raises InferenceError when that will not happen."""

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int) -> Completion:
        """Sample a reply; the same weights, prompt, parameters and seed give the same one, up to float noise
        that depends on what else is in the batch.

        Raises:
            InferenceError: the request was refused, or went unanswered after retries.
        """

    async def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probabilities of token_ids[1:], each given what stands before it, at temperature 1."""

    async def load_policy(self, weights: PolicyWeights, version: int) -> None:
        """Serve other weights from now on, with nothing cached of the old ones; check them by their probe.

        Raises:
            InferenceError: they could not be loaded, requests were under way, or the probe differs.
        """
