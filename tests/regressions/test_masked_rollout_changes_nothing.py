"""L1 (TRL 6369): a rollout masked out as truncated still diluted the loss; all masked gave NaN."""

from dataclasses import replace

import pytest

from tests.grpo.policies import assert_same_gradients, update


def masked(sequence):
    """The sequence with nothing of it left to train on."""
    nothing = len(sequence.token_ids)
    return replace(sequence, mask=(False,) * nothing, logprobs=(None,) * nothing)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo"])
def test_masked_rollout_changes_nothing(policy, batch, loss):
    settings = {"loss": loss, "constant_length": 16 if loss == "dr_grpo" else None}
    kept = [batch[0], *batch[2:]]
    without, theirs, _ = update(policy, kept, **settings)
    with_it, ours, _ = update(policy, [batch[0], masked(batch[1]), *batch[2:]], **settings)
    assert with_it.steps[0].loss == pytest.approx(without.steps[0].loss, abs=1e-12)
    assert with_it.steps[0].trajectories == 3
    assert_same_gradients(ours, theirs)


def test_all_masked_is_skipped_with_a_reason(policy, batch):
    result, gradients, trainer = update(policy, [masked(sequence) for sequence in batch])
    [step] = result.steps
    assert (step.skipped, step.loss, step.tokens) == ("no_usable_rollouts", None, 0)
    assert not gradients
    assert not trainer.optimizer_state()
