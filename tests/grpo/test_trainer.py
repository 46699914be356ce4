"""The trainer against the reference: the same loss and the same gradients, however the batch is cut."""

import copy
from dataclasses import replace

import pytest
import torch

from tasks.grpo.trainer import Trainer
from tasks.settings import UpdateSettings
from tests.grpo import reference
from tests.grpo.conftest import make_sequence

NO_CLIP_NORM = 1e9


def update(model, batch, *, temperature=1.0, seed=0, **settings):
    """Run an update with the gradients left as they are; returns its result and the gradients."""
    model = copy.deepcopy(model)
    given = {"max_grad_norm": NO_CLIP_NORM, "correction": "none", **settings}
    trainer = Trainer(model, UpdateSettings(**given), temperature=temperature)
    result = trainer.update(batch, seed=seed)
    return result, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, trainer


def assert_same_gradients(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "aggregation", "constant"),
    [
        ("grpo", "sequence", None),
        ("dapo", "token", None),
        ("dr_grpo", "constant", 16),
        ("gspo", "sequence", None),
        ("cispo", "token", None),
        ("reinforce", "token", None),
    ],
)
def test_each_loss_equals_its_paper(policy, batch, name, aggregation, constant):
    expected = reference.loss(policy, batch, name=name, aggregation=aggregation, constant=constant)
    theirs, norm = reference.gradients(policy, expected)
    result, ours, _ = update(policy, batch, loss=name, constant_length=constant)
    assert result.steps[0].loss == pytest.approx(float(expected), abs=1e-6)
    assert result.steps[0].grad_norm == pytest.approx(norm, rel=1e-4)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("budget", [1, 16, 4096])
def test_the_row_budget_changes_nothing(policy, batch, budget):
    """L2 (prime-rl 2562, TRL 2647, verl 3332): the same sequences, cut differently."""
    whole, theirs, _ = update(policy, batch)
    cut, ours, _ = update(policy, batch, tokens_per_batch=budget)
    assert cut.steps[0].loss == pytest.approx(whole.steps[0].loss, abs=1e-6)
    assert_same_gradients(ours, theirs)


def test_nothing_leaks_between_packed_sequences(policy, batch):
    together, *_ = update(policy, batch)
    alone = {s.trajectory_id: update(policy, [s])[0].token_stats[0] for s in batch}
    for stats in together.token_stats:
        assert stats.trainer_logprobs == pytest.approx(alone[stats.trajectory_id].trainer_logprobs, abs=1e-5)
        expected = reference.token_logprobs(
            policy, next(s for s in batch if s.trajectory_id == stats.trajectory_id)
        )
        assert stats.trainer_logprobs == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_shared_prompt_is_computed_once(policy):
    group = [make_sequence(str(n), "g", prompt=range(100, 150), turns=((20 + n,),)) for n in range(4)]
    result, *_ = update(policy, group)
    assert result.steps[0].forward_tokens == 50 + 4


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_term_equals_its_formula_and_has_a_gradient(policy, batch, estimator):
    """L4 (SkyRL 1353): a KL term whose gradient was zero."""
    quiet = [replace(s, advantage=0.0) for s in batch]
    with policy.disable_adapter():
        base = {s.trajectory_id: reference.token_logprobs(policy, s).detach() for s in quiet}
    expected = reference.loss(policy, quiet, kl=0.3, estimator=estimator, reference=base)
    theirs, norm = reference.gradients(policy, expected)
    result, ours, _ = update(policy, quiet, kl_coefficient=0.3, kl_estimator=estimator)
    assert norm > 1e-4
    assert result.steps[0].loss == pytest.approx(float(expected), abs=1e-6)
    assert_same_gradients(ours, theirs)
    assert result.token_stats[0].reference_logprobs == pytest.approx(base["a"].tolist(), abs=1e-5)


def test_truncated_correction_weighs_tokens(policy, batch):
    expected = reference.loss(policy, batch, bound=2.0)
    theirs, _ = reference.gradients(policy, expected)
    result, ours, _ = update(policy, batch, correction="truncated_token", correction_bound=2.0)
    assert result.steps[0].loss == pytest.approx(float(expected), abs=1e-5)
    assert_same_gradients(ours, theirs)


def test_later_optimiser_steps_compare_with_the_policy_before_the_first(policy, batch):
    before = {s.trajectory_id: reference.token_logprobs(policy, s).detach() for s in batch}
    result, *_ = update(policy, batch, epochs=2, learning_rate=1e-2)
    stored = {stats.trajectory_id: stats.trainer_logprobs for stats in result.token_stats}
    for name, logprobs in before.items():
        assert stored[name] == pytest.approx(logprobs.tolist(), abs=1e-5)
    # The second step's loss is that of the first step's weights against these log-probabilities.
    once, _, after_one = update(policy, batch, epochs=1, learning_rate=1e-2)
    expected = reference.loss(after_one.model, batch, old=before)
    assert result.steps[1].loss == pytest.approx(float(expected), abs=1e-5)
    assert result.steps[1].loss != pytest.approx(once.steps[0].loss, abs=1e-3)


def test_temperature_is_applied_by_the_trainer(policy, batch):
    """L5 (TRL 4159, 6789): with the sampler's temperature the first ratio is 1 on every token."""
    sampled = []
    for sequence in batch:
        found = iter(reference.token_logprobs(policy, sequence, temperature=0.7).tolist())
        logprobs = tuple(next(found) if m else None for m in sequence.mask)
        sampled.append(replace(sequence, logprobs=logprobs))
    result, *_ = update(policy, sampled, temperature=0.7)
    for stats in result.token_stats:
        assert stats.ratios == pytest.approx([1.0] * len(stats.ratios), abs=1e-5)


def test_only_sampled_tokens_carry_an_advantage(policy):
    """L7 (SkyRL 1507): a three-turn trajectory with the tool's text between."""
    sequence = make_sequence(
        "x", turns=((20,), (21, 22), (23,)), between=(30, 31, 32), advantage=0.5, offset=7
    )
    result, *_ = update(policy, [sequence])
    [stats] = result.token_stats
    assert stats.positions == [7 + i for i, m in enumerate(sequence.mask) if m]
    assert stats.advantages == [0.5] * 4


def test_a_missing_logprob_takes_its_trajectory_out(policy, batch):
    """L6 (TRL 5001)."""
    holed = replace(batch[0], logprobs=tuple([None] * len(batch[0].mask)))
    result, ours, _ = update(policy, [holed, *batch[1:]])
    _, theirs, _ = update(policy, batch[1:])
    assert result.steps[0].metrics["missing_logprobs"] == 1
    assert result.steps[0].trajectories == 3
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda batch: [], "no_usable_rollouts"),
        (lambda batch: [replace(s, advantage=0.0) for s in batch], "all_advantages_zero"),
    ],
)
def test_a_batch_with_nothing_to_learn_is_skipped_with_its_reason(policy, batch, make, reason):
    """L1, T6 (TRL 6369, prime-rl 1596): finite, counted, and nothing moves."""
    before = {n: p.clone() for n, p in policy.named_parameters()}
    result, gradients, trainer = update(policy, make(batch))
    assert (result.steps[0].skipped, result.steps[0].loss) == (reason, None)
    assert not gradients
    assert not trainer.optimizer_state()
    assert all(torch.equal(before[n], p) for n, p in trainer.model.named_parameters())


def test_a_gradient_that_is_not_finite_is_skipped(policy, batch):
    poisoned = replace(batch[0], advantage=float("inf"))
    result, _, trainer = update(policy, [poisoned, *batch[1:]])
    assert result.steps[0].skipped == "non_finite_gradient"
    assert not trainer.optimizer_state()


def test_an_update_repeats_itself_and_goes_on_from_its_stored_state(policy, batch):
    def two_updates(stop_between):
        trainer = Trainer(copy.deepcopy(policy), UpdateSettings(learning_rate=1e-2), temperature=1.0)
        trainer.update(batch, seed=1)
        if stop_between:
            state = trainer.optimizer_state()
            trainer = Trainer(trainer.model, UpdateSettings(learning_rate=1e-2), temperature=1.0)
            trainer.load_optimizer_state(state)
        trainer.update(batch, seed=2)
        return dict(trainer.model.named_parameters())

    straight, resumed = two_updates(False), two_updates(True)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_state_of_other_parameters_is_refused(policy):
    trainer = Trainer(policy, UpdateSettings(), temperature=1.0)
    with pytest.raises(ValueError, match="other parameters"):
        trainer.load_optimizer_state({"other.exp_avg": torch.zeros(1)})
