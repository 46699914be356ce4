"""What becomes of the reward of a rollout that was cut at its length limit, or came close to it.

Source of `mask` and `ramp`: DAPO (arXiv 2503.14476), section 3.4. A cut rollout may have been on its way to
the right answer, so scoring it as wrong teaches noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Overlong = Literal["keep", "mask", "zero", "ramp"]


def overlong_rewards(
    rewards: Sequence[float | None],
    lengths: Sequence[int],
    truncated: Sequence[bool],
    policy: Overlong,
    *,
    limit: int | None = None,
    buffer: int | None = None,
) -> list[float | None]:
    """Rewards after the named policy.

    Args:
        rewards: of each rollout; one that is None stays so.
        lengths: tokens that each rollout sampled.
        truncated: whether it was cut at its limit.
        policy: `keep` changes nothing; `mask` takes truncated rollouts out, of the baseline and of the loss;
            `zero` gives them 0.0; `ramp` adds to every reward 0 up to limit - buffer tokens, falling
            linearly to -1 at limit, and -1 beyond.
        limit, buffer: in tokens; for `ramp` alone.

    Raises:
        ValueError: `ramp` lacks limit or buffer, or buffer is not in [1, limit].
    """
    if policy == "keep":
        return list(rewards)
    if policy == "ramp":
        if limit is None or buffer is None or not 1 <= buffer <= limit:
            raise ValueError(
                f"ramp needs a limit and a buffer of 1 to limit tokens, not {limit} and {buffer}"
            )
        return [
            None if reward is None else reward + length_penalty(length, limit, buffer)
            for reward, length in zip(rewards, lengths, strict=True)
        ]
    instead = None if policy == "mask" else 0.0
    return [
        instead if cut and reward is not None else reward
        for reward, cut in zip(rewards, truncated, strict=True)
    ]


def length_penalty(length: int, limit: int, buffer: int) -> float:
    """0 up to limit - buffer tokens, then linearly down to -1 at `limit`; DAPO's soft overlong punishment."""
    return -min(max(length - (limit - buffer), 0) / buffer, 1.0)
