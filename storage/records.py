"""What travels between stages: frozen dataclasses, one for each kind of row.

A record says what a thing *is*; `schemas.py` says how it is stored. Identity is data: a group is
(run, step, split, scenario_id, group_no), a trajectory is a group and a sample_no, and everything drawn at
random is seeded from those, so that an interrupted run draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class StopReason(StrEnum):
    """Why an episode ended. Every trajectory has exactly one."""

    COMPLETED = "completed"  # the environment said that it is done
    MAX_TURNS = "max_turns"  # the turn limit of the rollout
    MAX_TOKENS = "max_tokens"  # a turn was cut at its limit and the policy for that is to stop, or an episode
    MAX_TOOL_CALLS = "max_tool_calls"  # the limit of tool calls; those of the last reply were not run
    CONTEXT_OVERFLOW = "context_overflow"  # no room left in the model's context for another turn
    PROMPT_TOO_LONG = "prompt_too_long"  # the first prompt already did not fit; nothing was sampled
    PARSE_ERROR = "parse_error"  # the policy's reply could not be read, and the policy for that is to stop
    ENVIRONMENT_ERROR = "environment_error"  # the environment raised
    INFERENCE_ERROR = "inference_error"  # the sampler failed
    TIMEOUT = "timeout"  # the wall-clock limit of the episode

    @property
    def is_failure(self) -> bool:
        """The rollout was lost to infrastructure: it is stored, trains nothing, and leaves the baseline."""
        return self in FAILURES


FAILURES = frozenset(
    {
        StopReason.PROMPT_TOO_LONG,
        StopReason.ENVIRONMENT_ERROR,
        StopReason.INFERENCE_ERROR,
        StopReason.TIMEOUT,
    }
)


@dataclass(frozen=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON text as the policy wrote it; not checked here


@dataclass(frozen=True)
class Message:
    """One chat message. `content` is None where a reply holds only tool calls."""

    role: str  # system | user | assistant | tool
    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Scenario:
    """One task for the agent. `payload` is what its environment needs to start it, JSON-serialisable."""

    scenario_id: str
    payload: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupKey:
    """The rollouts that are compared with each other: one scenario, sampled several times."""

    run: str
    step: int
    split: str  # train | validation
    scenario_id: str
    group_no: int  # which of the groups of this step that play the same scenario

    @property
    def group_id(self) -> str:
        return _digest("group", self.run, self.step, self.split, self.scenario_id, self.group_no)

    def trajectory_id(self, sample_no: int) -> str:
        return _digest(
            "trajectory", self.run, self.step, self.split, self.scenario_id, self.group_no, sample_no
        )

    def seed(self, sample_no: int, turn: int) -> int:
        """Sampling seed of one turn, in [0, 2**31): members of a group differ, reruns agree."""
        return int(_digest("seed", self.trajectory_id(sample_no), turn)[:15], 16) % 2**31


@dataclass(frozen=True)
class Turn:
    """One reply of the policy. `start`:`end` index the trajectory's token record: what was sampled."""

    turn: int
    segment: int
    start: int
    end: int
    finish_reason: str  # stop | length, as the sampler said
    policy_version: int  # adapter step that was serving when the request started
    seed: int
    reward: float | None  # what the environment gave for this turn, if it gives any
    started_at: datetime
    seconds: float


@dataclass(frozen=True)
class Trajectory:
    """One episode of one seat: what was said, and the exact tokens that were sampled.

    The token record is flat: `token_ids`, `mask` and `logprobs` have one entry for each token of all
    segments, laid end to end; `segment_starts` says where each segment begins. `mask` is True where the
    policy sampled the token, and `logprobs` is None everywhere else.
    """

    key: GroupKey
    sample_no: int
    policy_version: int
    messages: tuple[Message, ...]
    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float | None, ...]
    segment_starts: tuple[int, ...]
    turns: tuple[Turn, ...]
    prompt_digest: str
    stop_reason: StopReason
    started_at: datetime
    seconds: float
    temperature: float
    error: str | None = None
    environment_reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    seat: str | None = None
    match_id: str | None = None

    @property
    def trajectory_id(self) -> str:
        return self.key.trajectory_id(self.sample_no)


@dataclass(frozen=True)
class Score:
    """What one scorer says of one trajectory. `reward` None means unscored; 0.0 is a reward."""

    trajectory_id: str
    scorer: str
    reward: float | None
    components: Mapping[str, float] = field(default_factory=dict)
    explanation: str | None = None
    error: str | None = None
    judge_call_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class JudgeCall:
    """One request to a judge and its raw reply. `error` says why the reply was not used, or is not there."""

    judge_call_id: str
    model: str
    prompt_version: str
    attempt: int
    group_id: str | None
    trajectory_ids: tuple[str, ...]
    request: str  # JSON: the messages
    started_at: datetime
    seconds: float
    reply: str | None = None
    error: str | None = None
    cached: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None


def _digest(*parts: object) -> str:
    """32 hex digits that name `parts`; the separator keeps ('a', 'bc') apart from ('ab', 'c')."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:32]
