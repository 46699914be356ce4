"""The policy of a step, as it is served: the adapter's weights in the sampler, and proof that they are."""

from __future__ import annotations

from storage.store import Store
from tasks.inference.sampler import PolicyWeights, Sampler
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
            await sampler.load_policy(policy_weights(run.store, run.name, step), step)
