"""The exact tokens of an episode, as prompted and as sampled; nothing is ever decoded and encoded again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class TokenRecord:
    """Grows with the episode. A segment is one run of tokens that the policy saw as a single context."""

    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    segment_starts: list[int] = field(default_factory=list)
    prompt_digest: str = ""

    @property
    def context(self) -> list[int]:
        """Token ids of the current segment: the prompt of the next request."""
        return self.token_ids[self.segment_starts[-1] :]

    @property
    def segment(self) -> int:
        return len(self.segment_starts) - 1

    def begin_segment(self, prompt_ids: Sequence[int]) -> None:
        """Start over with a prompt of its own, because the last context could not be extended."""
        if not self.segment_starts:
            self.prompt_digest = hashlib.sha256(repr(list(prompt_ids)).encode()).hexdigest()
        self.segment_starts.append(len(self.token_ids))
        self.extend(prompt_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens that the policy reads and did not write."""
        self.token_ids.extend(token_ids)
        self.mask.extend([False] * len(token_ids))
        self.logprobs.extend([None] * len(token_ids))

    def append_sampled(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> tuple[int, int]:
        """Append what was sampled; returns the range of indexes that it takes."""
        if len(token_ids) != len(logprobs):
            raise ValueError(f"{len(token_ids)} sampled tokens came with {len(logprobs)} log-probabilities")
        start = len(self.token_ids)
        self.token_ids.extend(token_ids)
        self.mask.extend([True] * len(token_ids))
        self.logprobs.extend(logprobs)
        return start, len(self.token_ids)
