"""What an update reports: one row for each optimiser step, and what was computed for each sampled token."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OptimizerStep:
    """One row of the dataset `updates`."""

    optimizer_step: int
    loss: float | None
    grad_norm: float | None
    learning_rate: float
    skipped: str | None
    trajectories: int
    tokens: int
    forward_tokens: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class TokenStats:
    """One row of the dataset `token_stats`: a trajectory's sampled tokens before the first optimiser step."""

    trajectory_id: str
    positions: list[int]
    trainer_logprobs: list[float]
    reference_logprobs: list[float] | None
    entropies: list[float]
    ratios: list[float]
    advantages: list[float]


@dataclass(frozen=True)
class UpdateResult:
    steps: list[OptimizerStep]
    token_stats: list[TokenStats]
