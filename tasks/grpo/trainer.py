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
from tasks.grpo.logprobs import row_logprobs, use_packing
from tasks.grpo.metrics import step_metrics
from tasks.grpo.objective import Before, token_advantages, token_losses
from tasks.grpo.observations import Observations
from tasks.grpo.processes import gather, own_share, sum_gradients
from tasks.grpo.results import OptimizerStep, UpdateResult
from tasks.settings import UpdateSettings

BETAS = (0.9, 0.999)  # AdamW's own, and TRL's
Progress = Callable[[int, int], None]


class Trainer:
    """Holds a peft model in training, and its optimiser, from update to update.

    Raises:
        ValueError: the model cannot be trained on packed rows; see `use_packing`.
    """

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
        use_packing(model)
        if settings.gradient_checkpointing:
            model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": False})

    def update(
        self, sequences: Sequence[TrainingSequence], *, seed: int, progress: Progress | None = None
    ) -> UpdateResult:
        """Train on `sequences`. The result is a function of model, optimiser, these and `seed`.

        Trajectories that lack a sampler's log-probability leave the loss and are counted; segments in which
        nothing was sampled have no part in it.

        Args:
            progress: is called with the rows done and the rows in all, those of this process.

        Raises:
            ValueError: a segment comes twice.
        """
        _refuse_doubles(sequences)
        missing = {s.trajectory_id for s in sequences if not s.has_all_logprobs}
        usable = [s for s in sequences if s.sampled and s.trajectory_id not in missing]
        batches = self._minibatches(usable, seed)
        budget = self._settings.tokens_per_batch
        # The first minibatch is seen as the policy was by the forward pass of training itself.
        first = {id(sequence) for sequence in batches[0]}
        looks = list(pack((s for s in usable if id(s) not in first), budget))
        rows = [list(pack(batch, budget)) for batch in batches]
        count = _counter(progress, sum(len(own_share(part)) for part in (looks, *rows)))
        observations = Observations()
        self.model.train()
        with torch.random.fork_rng():
            torch.manual_seed(seed)  # dropout
            self._look(looks, observations, count)
            steps = [self._step(n, batch, observations, count) for n, batch in enumerate(rows)]
        steps[0].metrics["missing_logprobs"] = len(missing)
        return UpdateResult(steps, observations.token_stats())

    def optimizer_state(self) -> dict[str, Tensor]:
        """AdamW's moments and step counts by parameter, as tensors that safetensors can hold; empty before
        the first step."""
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
        if state and set(by_parameter) != set(self._parameters):
            raise ValueError("the optimiser state belongs to other parameters than this adapter's")
        for name, moments in by_parameter.items():
            expected = self._parameters[name].shape
            if moments["exp_avg"].shape != expected:
                raise ValueError(
                    f"the optimiser state of {name} has the shape {tuple(moments['exp_avg'].shape)}, "
                    f"the adapter's {tuple(expected)}: it belongs to an adapter of another rank"
                )
        self._optimizer.state.clear()
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

    def _look(self, rows: Sequence[PackedRow], observations: Observations, count: Callable[[], None]) -> None:
        """Compute every sampled token's log-probability before any optimiser step."""
        with torch.no_grad():
            for row in own_share(rows):
                self._observe(row, observations, *row_logprobs(self.model, row, self._temperature))
                count()
        observations.share()

    def _observe(
        self, row: PackedRow, observations: Observations, logprobs: Tensor, entropies: Tensor
    ) -> None:
        old, reference = logprobs.detach(), self._reference(row)
        given = _on(old, row.per_token([sequence.advantage for sequence in row.sequences]))
        advantages = token_advantages(given, old, reference, self._settings)
        observations.add(row, Before(old, reference, advantages), entropies.detach())

    def _reference(self, row: PackedRow) -> Tensor | None:
        """Log-probabilities under the base model, where a KL term asks for them."""
        if not self._settings.kl_coefficient:
            return None
        with torch.no_grad(), self.model.disable_adapter():
            return row_logprobs(self.model, row, self._temperature)[0]

    def _step(
        self, number: int, rows: Sequence[PackedRow], observations: Observations, count: Callable[[], None]
    ) -> OptimizerStep:
        clock = time.monotonic()
        batch = [sequence for row in rows for sequence in row.sequences]
        skipped, loss, norm = self._why_skip(batch), 0.0, math.nan
        weights = self._weights(batch) if batch else {}
        seen: defaultdict[str, list[Tensor]] = defaultdict(list)
        for row in own_share(rows):
            # What teaches nothing still says what its tokens look like, but needs no backward pass.
            teaches = not skipped and self._teaches(row.sequences)
            with nullcontext() if teaches else torch.no_grad():
                row_loss = self._loss(row, weights, observations, seen)
            if teaches:
                row_loss.backward()
            loss += float(row_loss.detach())
            count()
        loss = sum(gather(loss))
        observations.share()
        if not skipped:
            norm = self._apply_gradients()
            skipped = None if math.isfinite(norm) else "non_finite_gradient"
        return OptimizerStep(
            number,
            loss=None if skipped else loss,
            grad_norm=None if skipped else norm,
            learning_rate=self._settings.learning_rate,
            skipped=skipped,
            trajectories=len({sequence.trajectory_id for sequence in batch}),
            tokens=sum(len(sequence.sampled) for sequence in batch),
            forward_tokens=sum(len(row.token_ids) for row in rows),
            metrics=step_metrics(_together(seen)),
            seconds=time.monotonic() - clock,
        )

    def _apply_gradients(self) -> float:
        """Sum, clip, and step if they are finite; leaves none behind. Returns their norm before clipping."""
        sum_gradients(self._parameters.values())
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.max_grad_norm))
        if math.isfinite(norm):
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

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
        seen: defaultdict[str, list[Tensor]],
    ) -> Tensor:
        """The row's part of the step's loss; adds what there is to report of its tokens to `seen`."""
        settings = self._settings
        logprobs, entropies = row_logprobs(
            self.model, row, self._temperature, entropy_gradient=settings.entropy_coefficient > 0
        )
        if not observations.know(row):
            self._observe(row, observations, logprobs, entropies)
        losses, of_tokens = token_losses(
            logprobs,
            entropies,
            sampler=_on(logprobs, row.sampler_logprobs),
            sequences=torch.tensor(row.per_token(range(len(row.sequences))), device=logprobs.device),
            before=observations.recall(row, logprobs.device),
            settings=settings,
        )
        for name, values in of_tokens.items():
            seen[name].append(values)
        return (
            losses * _on(logprobs, row.per_token([weights[s.trajectory_id] for s in row.sequences]))
        ).sum()

    def _why_skip(self, batch: Sequence[TrainingSequence]) -> str | None:
        if not batch:
            return "no_usable_rollouts"
        return None if self._teaches(batch) else "all_advantages_zero"

    def _teaches(self, sequences: Sequence[TrainingSequence]) -> bool:
        """Whether the loss of any of them has a gradient."""
        has_other_terms = self._settings.kl_coefficient > 0 or self._settings.entropy_coefficient > 0
        return has_other_terms or any(sequence.advantage != 0 for sequence in sequences)


def _on(like: Tensor, values: Sequence[float]) -> Tensor:
    """(tokens,) `values` in the type and on the device of `like`."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def _together(seen: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    """(tokens,) each: what was seen of all tokens, by all processes."""
    shares = gather({name: torch.cat(parts).cpu() for name, parts in seen.items()})
    names = dict.fromkeys(name for share in shares for name in share)
    return {name: torch.cat([share[name] for share in shares if name in share]) for name in names}


def _counter(progress: Progress | None, total: int) -> Callable[[], None]:
    """Counts one more row done each time it is called."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return count


def _refuse_doubles(sequences: Sequence[TrainingSequence]) -> None:
    found = Counter((sequence.trajectory_id, sequence.offset) for sequence in sequences)
    if doubles := [key for key, times in found.items() if times > 1]:
        raise ValueError(f"{len(doubles)} segments came twice, such as {doubles[0]} (trajectory, offset)")
