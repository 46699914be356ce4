"""One update of the policy: minibatches of packed rows, a loss, clipped gradients, AdamW."""

from __future__ import annotations

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from tasks.grpo.aggregation import BY_LOSS, token_weights
from tasks.grpo.batches import PackedRow, TrainingSequence, pack
from tasks.grpo.corrections import correction_weights
from tasks.grpo.kl import ESTIMATORS
from tasks.grpo.logprobs import row_logprobs
from tasks.grpo.losses import LOSSES, Clip
from tasks.grpo.observations import Observations
from tasks.grpo.results import OptimizerStep, UpdateResult
from tasks.settings import UpdateSettings

BETAS = (0.9, 0.999)
Progress = Callable[[int, int], None]


class Trainer:
    """Holds a peft model in training, and its optimiser, from update to update."""

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
        if settings.gradient_checkpointing:
            model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()

    def update(
        self, sequences: Sequence[TrainingSequence], *, seed: int, progress: Progress | None = None
    ) -> UpdateResult:
        """Train on `sequences`. The result is a function of model, optimiser, these and `seed`.

        Sequences that lack a sampler's log-probability leave the loss and are counted.
        """
        torch.manual_seed(seed)  # dropout
        usable = [s for s in sequences if all(s.logprobs[index] is not None for index in s.sampled)]
        batches = self._minibatches(usable, seed)
        observations = Observations()
        if len(batches) > 1:  # else the one forward pass of training sees the policy as it was
            self._look(usable, observations)
        steps = [self._step(n, batch, observations, progress) for n, batch in enumerate(batches)]
        steps[0].metrics["missing_logprobs"] = len(sequences) - len(usable)
        return UpdateResult(steps, observations.token_stats())

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
        parts = max(1, min(self._settings.optimizer_steps, len(groups)))
        batches = []
        for epoch in range(self._settings.epochs):
            order = list(groups)
            random.Random(f"minibatches/{seed}/{epoch}").shuffle(order)
            batches += [[s for group in order[part::parts] for s in groups[group]] for part in range(parts)]
        return batches

    def _look(self, sequences: Sequence[TrainingSequence], observations: Observations) -> None:
        """Compute every sampled token's log-probability before any optimiser step."""
        with torch.no_grad():
            for row in pack(sequences, self._settings.tokens_per_batch):
                logprobs, entropies = row_logprobs(self.model, row, self._temperature)
                observations.add(row, logprobs, entropies, self._reference(row))

    def _reference(self, row: PackedRow) -> Tensor | None:
        """Log-probabilities under the base model, where a KL term asks for them."""
        if not self._settings.kl_coefficient:
            return None
        with torch.no_grad(), self.model.disable_adapter():
            return row_logprobs(self.model, row, self._temperature)[0]

    def _step(
        self,
        number: int,
        batch: Sequence[TrainingSequence],
        observations: Observations,
        progress: Progress | None,
    ) -> OptimizerStep:
        clock = time.monotonic()
        rows = list(pack(batch, self._settings.tokens_per_batch))
        tokens = sum(len(sequence.sampled) for sequence in batch)
        skipped, norm = self._why_skip(batch), math.nan
        totals: defaultdict[str, float] = defaultdict(float)
        weights = self._weights(batch) if batch else {}
        self._optimizer.zero_grad(set_to_none=True)
        for done, row in enumerate(rows, start=1):
            # A skipped step still says what its tokens look like.
            with torch.no_grad() if skipped else nullcontext():
                loss = self._loss(row, weights, observations, totals)
            if not skipped:
                loss.backward()
            if progress is not None:
                progress(done, len(rows))
        if not skipped:
            norm = float(
                torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.max_grad_norm)
            )
            if math.isfinite(norm):
                self._optimizer.step()
            else:
                skipped = "non_finite_gradient"
        loss_value = totals.pop("loss", 0.0)
        return OptimizerStep(
            number,
            loss=None if skipped else loss_value,
            grad_norm=None if skipped else norm,
            learning_rate=self._settings.learning_rate,
            skipped=skipped,
            trajectories=len({sequence.trajectory_id for sequence in batch}),
            tokens=tokens,
            forward_tokens=sum(len(row.token_ids) for row in rows),
            metrics={name: total / tokens for name, total in totals.items()},
            seconds=time.monotonic() - clock,
        )

    def _weights(self, batch: Sequence[TrainingSequence]) -> dict[str, float]:
        """Weight of one token of each trajectory. A trajectory of several segments counts once."""
        lengths: Counter[str] = Counter()
        for sequence in batch:
            lengths[sequence.trajectory_id] += len(sequence.sampled)
        aggregation = self._settings.aggregation or BY_LOSS[self._settings.loss]
        weights = token_weights(list(lengths.values()), aggregation, self._settings.constant_length)
        return dict(zip(lengths, weights, strict=True))

    def _loss(
        self,
        row: PackedRow,
        weights: dict[str, float],
        observations: Observations,
        totals: defaultdict[str, float],
    ) -> Tensor:
        """The row's part of the step's loss; adds what there is to report to `totals`."""
        settings = self._settings
        logprobs, entropies = row_logprobs(self.model, row, self._temperature)
        device = logprobs.device
        if not observations.know(row):
            observations.add(row, logprobs.detach(), entropies.detach(), self._reference(row))
        old, reference = observations.recall(row, device)
        sampler = torch.tensor(row.sampler_logprobs, device=device)
        advantages = torch.tensor(row.per_token([s.advantage for s in row.sequences]), device=device)
        sequences = torch.tensor(row.per_token(list(range(len(row.sequences)))), device=device)
        weight = torch.tensor(row.per_token([weights[s.trajectory_id] for s in row.sequences]), device=device)

        clip = Clip(settings.clip_low, settings.clip_high)
        correction = correction_weights(
            old, sampler, sequences, settings.correction, settings.correction_bound
        )
        loss = LOSSES[settings.loss](logprobs, old, advantages, sequences, clip) * correction
        if reference is not None:
            kl = ESTIMATORS[settings.kl_estimator](logprobs, reference)
            loss = loss + settings.kl_coefficient * kl
            totals["kl"] += float(kl.detach().sum())
        if settings.entropy_coefficient:
            loss = loss - settings.entropy_coefficient * entropies
        total = (loss * weight).sum()

        ratio = (logprobs.detach() - old).exp()
        low = (ratio < 1 - clip.low) & (advantages < 0)
        high = (ratio > 1 + clip.high) & (advantages > 0)
        totals["loss"] += float(total.detach())
        totals["clip_ratio/low_mean"] += float(low.sum())
        totals["clip_ratio/high_mean"] += float(high.sum())
        totals["clip_ratio/region_mean"] += float((low | high).sum())
        totals["entropy"] += float(entropies.detach().sum())
        totals["sampling/importance_sampling_ratio/mean"] += float(correction.sum())
        return total

    def _why_skip(self, batch: Sequence[TrainingSequence]) -> str | None:
        if not batch:
            return "no_usable_rollouts"
        has_other_terms = self._settings.kl_coefficient or self._settings.entropy_coefficient
        if not has_other_terms and all(sequence.advantage == 0 for sequence in batch):
            return "all_advantages_zero"
        return None
