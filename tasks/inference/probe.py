"""The probe: sampler and trainer must agree on a fixed string after each change of weights.

An adapter that was applied twice or not at all, keys that matched nothing, a stale cache: all of them give
fluent text, and training on it looks healthy for a long while. They cannot give the trainer's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tasks.inference.sampler import InferenceError, PolicyWeights, Sampler

# Measured for float32: 4e-5 at most between vLLM and transformers. bfloat16 has 8 bits of mantissa.
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.15}


async def check_policy(sampler: Sampler, weights: PolicyWeights, version: int, tolerance: float) -> None:
    """Raise InferenceError unless `sampler` gives the probe the log-probabilities that its trainer gave."""
    found = await sampler.prompt_logprobs(weights.probe_ids)
    compare_probes(found, weights.probe_logprobs, tolerance, f"adapter {version}, {weights.adapter_folder}")


def compare_probes(found: Sequence[float], expected: Sequence[float], tolerance: float, what: str) -> None:
    """Raise InferenceError where two lists of log-probabilities differ by more than `tolerance` nats.

    A value that is not finite counts as the largest difference there is.
    """
    if len(found) != len(expected) or not expected:
        raise InferenceError(
            f"Checking the weights of {what}: the sampler gave {len(found)} log-probabilities of the probe "
            f"and the trainer stored {len(expected)}. The adapter's manifest.json is damaged."
        )
    differences = [_difference(ours, theirs) for ours, theirs in zip(found, expected, strict=True)]
    worst = max(range(len(differences)), key=differences.__getitem__)
    if differences[worst] > tolerance:
        raise InferenceError(
            f"Checking the weights of {what}: the sampler does not compute what the trainer computed. They "
            f"differ most at position {worst} of the probe: sampler {found[worst]:.6f}, trainer "
            f"{expected[worst]:.6f}, difference {differences[worst]:.6f}, tolerance {tolerance:g} nats. "
            "Either the sampler has other weights (base model, adapter), and would give rollouts of another "
            "policy; or the two compute in different precision: then raise inference.probe_tolerance."
        )


def _difference(a: float, b: float) -> float:
    difference = abs(a - b)
    return difference if math.isfinite(difference) else math.inf
