"""One update of the policy: minibatches of packed rows, a loss, clipped gradients, AdamW."""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tasks.grpo.aggregation import AGGREGATIONS
from tasks.grpo.batches import PackedRow, TrainingSequence, pack
from tasks.grpo.corrections import correction_weights
from tasks.grpo.logprobs import row_logprobs
from tasks.grpo.losses import LOSSES, Clip
from tasks.settings import UpdateSettings

BETAS = (0.9, 0.999)
Progress = Callable[[int, int], None]


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


@dataclass
class TokenStats:
    """One row of the dataset `token_stats`: a trajectory's sampled tokens before the first optimiser step."""

    trajectory_id: str
    positions: list[int] = field(default_factory=list)
    trainer_logprobs: list[float] = field(default_factory=list)
    reference_logprobs: list[float] | None = None
    entropies: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class UpdateResult:
    steps: list[OptimizerStep]
    token_stats: list[TokenStats]


class Trainer:
    """Holds the model, a peft model in training, and its optimiser from update to update."""

    def __init__(self, model: Any, settings: UpdateSettings, *, temperature: float) -> None:
        self.model = model
        self._settings, self._temperature = settings, temperature
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=settings.learning_rate,
            betas=BETAS,
            weight_decay=settings.weight_decay,
        )
        model.train()

    def update(
        self, sequences: Sequence[TrainingSequence], *, seed: int, progress: Progress | None = None
    ) -> UpdateResult:
        """Train on `sequences`; the result is a function of the model, the optimiser, these and `seed`."""
        torch.manual_seed(seed)  # dropout
        usable = [s for s in sequences if all(s.logprobs[i] is not None for i in s.sampled)]
        stats: dict[str, TokenStats] = {}
        steps: list[OptimizerStep] = []
        for number, batch in enumerate(self._minibatches(usable, seed)):
            steps.append(self._step(number, batch, stats, progress))
        return UpdateResult(steps, list(stats.values()))

    def optimizer_state(self) -> dict[str, Tensor]:
        """AdamW's moments and step counts by parameter, as tensors that safetensors can hold."""
        return {
            f"{name}.{key}": value.detach().clone()
            for name, parameter in self._parameters.items()
            for key, value in self._optimizer.state.get(parameter, {}).items()
        }

    def load_optimizer_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `optimizer_state` gave. Raises ValueError when it belongs to other parameters."""
        by_parameter: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, value in state.items():
            name, _, moment = key.rpartition(".")
            by_parameter[name][moment] = value.clone()
        if set(by_parameter) != set(self._parameters):
            raise ValueError("the optimiser state belongs to other parameters than this adapter's")
        for name, moments in by_parameter.items():
            self._optimizer.state[self._parameters[name]] = moments

    def _minibatches(self, sequences: Sequence[TrainingSequence], seed: int) -> list[list[TrainingSequence]]:
        """Groups dealt out to the optimiser steps of each epoch; a group stays together."""
        groups: dict[str, list[TrainingSequence]] = defaultdict(list)
        for sequence in sequences:
            groups[sequence.group_id].append(sequence)
        count = max(1, min(self._settings.optimizer_steps, len(groups)))
        batches = []
        for epoch in range(self._settings.epochs):
            order = list(groups)
            if count > 1:
                random.Random(f"minibatches/{seed}/{epoch}").shuffle(order)
            batches += [[s for group in order[part::count] for s in groups[group]] for part in range(count)]
        return batches

    def _step(
        self,
        number: int,
        batch: Sequence[TrainingSequence],
        stats: dict[str, TokenStats],
        progress: Progress | None,
    ) -> OptimizerStep:
        clock, settings = time.monotonic(), self._settings
        rows = list(pack(batch, settings.tokens_per_batch))
        tokens = sum(len(s.sampled) for s in batch)
        skipped = _why_skip(batch)
        totals: dict[str, float] = defaultdict(float)
        if skipped is None:
            weights = dict(
                zip(
                    map(id, batch),
                    AGGREGATIONS[settings.aggregation]([len(s.sampled) for s in batch]),
                    strict=True,
                )
            )
            self._optimizer.zero_grad(set_to_none=True)
            for done, row in enumerate(rows, start=1):
                self._backward(row, weights, stats, totals)
                if progress is not None:
                    progress(done, len(rows))
            norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), settings.max_grad_norm))
            if math.isfinite(norm):
                self._optimizer.step()
            else:
                skipped = "non_finite_gradient"
        taken = skipped is None
        return OptimizerStep(
            number,
            loss=totals.pop("loss", 0.0) if taken else None,
            grad_norm=norm if taken else None,
            learning_rate=settings.learning_rate,
            skipped=skipped,
            trajectories=len({s.trajectory_id for s in batch}),
            tokens=tokens,
            forward_tokens=sum(len(row.token_ids) for row in rows),
            metrics={name: total / tokens for name, total in totals.items()} if taken else {},
            seconds=time.monotonic() - clock,
        )

    def _backward(
        self,
        row: PackedRow,
        weights: dict[int, float],
        stats: dict[str, TokenStats],
        totals: dict[str, float],
    ) -> None:
        settings = self._settings
        logprobs, entropies = row_logprobs(self.model, row, self._temperature)
        device = logprobs.device

        def per_token(values: list[float]) -> Tensor:
            """One value for each sequence, repeated over its sampled tokens."""
            repeated = [v for v, s in zip(values, row.sequences, strict=True) for _ in s.sampled]
            return torch.tensor(repeated, dtype=torch.float32, device=device)

        sampler = torch.tensor([s.logprobs[i] for s in row.sequences for i in s.sampled], device=device)
        advantages = per_token([s.advantage for s in row.sequences])
        numbers = per_token([float(n) for n in range(len(row.sequences))]).long()
        old = self._old_logprobs(row, logprobs.detach(), entropies, sampler, stats)
        clip = Clip(settings.clip_low, settings.clip_high)
        loss = LOSSES[settings.loss](logprobs, old, advantages, numbers, clip)
        correction = correction_weights(old, sampler, numbers, settings.correction, settings.correction_bound)
        weighted = (loss * correction * per_token([weights[id(s)] for s in row.sequences])).sum()
        weighted.backward()
        with torch.no_grad():
            ratio = (logprobs - old).exp()
            low = (ratio < 1 - settings.clip_low) & (advantages < 0)
            high = (ratio > 1 + settings.clip_high) & (advantages > 0)
            totals["loss"] += float(weighted)
            totals["clip_ratio/low_mean"] += float(low.sum())
            totals["clip_ratio/high_mean"] += float(high.sum())
            totals["clip_ratio/region_mean"] += float((low | high).sum())
            totals["entropy"] += float(entropies.sum())

    def _old_logprobs(
        self,
        row: PackedRow,
        logprobs: Tensor,
        entropies: Tensor,
        sampler: Tensor,
        stats: dict[str, TokenStats],
    ) -> Tensor:
        """Log-probabilities before the first optimiser step: these, the first time a token is seen."""
        old, start = [], 0
        for sequence in row.sequences:
            sampled = sequence.sampled
            part = slice(start, start + len(sampled))
            start += len(sampled)
            entry = stats.setdefault(sequence.trajectory_id, TokenStats(sequence.trajectory_id))
            positions = [sequence.offset + index for index in sampled]
            known = dict(zip(entry.positions, entry.trainer_logprobs, strict=True))
            if positions[0] not in known:
                entry.positions += positions
                entry.trainer_logprobs += logprobs[part].tolist()
                entry.entropies += entropies[part].tolist()
                entry.ratios += (logprobs[part] - sampler[part]).exp().tolist()
                entry.advantages += [sequence.advantage] * len(sampled)
                known = dict(zip(entry.positions, entry.trainer_logprobs, strict=True))
            old += [known[position] for position in positions]
        return torch.tensor(old, device=logprobs.device)


def _why_skip(batch: Sequence[TrainingSequence]) -> str | None:
    if not batch:
        return "no_usable_rollouts"
    if all(sequence.advantage == 0 for sequence in batch):
        return "all_advantages_zero"
    return None
