"""T6, L1 (TRL, prime-rl 1596): a step with nothing to learn from moved weights by momentum or decay."""

import copy
from dataclasses import replace

import pytest
import torch

from tasks.grpo.trainer import Trainer
from tasks.settings import UpdateSettings


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda batch: [], "no_usable_rollouts"),
        (lambda batch: [replace(s, advantage=0.0) for s in batch], "all_advantages_zero"),
    ],
)
def test_batch_without_signal_is_skipped(policy, batch, make, reason):
    trainer = Trainer(policy, UpdateSettings(weight_decay=0.1, learning_rate=1e-2), temperature=1.0)
    trainer.update(batch, seed=0)  # so that there is momentum
    weights, state = copy.deepcopy(trainer.model.state_dict()), trainer.optimizer_state()
    result = trainer.update(make(batch), seed=1)
    assert [(step.skipped, step.loss) for step in result.steps] == [(reason, None)]
    assert all(torch.equal(weights[name], value) for name, value in trainer.model.state_dict().items())
    assert all(torch.equal(state[name], value) for name, value in trainer.optimizer_state().items())
