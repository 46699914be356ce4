"""The trainer against the reference: the same loss and the same gradients, however the batch is cut."""

import copy
from dataclasses import replace

import pytest
import torch

from tasks.grpo.trainer import Trainer
from tasks.settings import UpdateSettings
from tests.grpo import reference
from tests.grpo.policies import assert_same_gradients, make_sequence, update


def assert_equals_reference(policy, batch, expected, **settings):
    theirs, norm = reference.gradients(policy, expected)
    result, ours, _ = update(policy, batch, **settings)
    [step] = result.steps
    assert step.loss == pytest.approx(expected.item(), abs=1e-6)
    assert step.grad_norm == pytest.approx(norm, rel=1e-6)
    assert_same_gradients(ours, theirs)
    return result


def base_logprobs(policy, batch):
    with policy.disable_adapter():
        return {s.trajectory_id: reference.token_logprobs(policy, s).detach() for s in batch}


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
    assert_equals_reference(policy, batch, expected, loss=name, constant_length=constant)


@pytest.mark.parametrize(("estimator", "placement"), [("k2", "loss"), ("k3", "loss"), ("k1", "advantage")])
def test_the_kl_term_equals_its_formula(policy, batch, estimator, placement):
    base = base_logprobs(policy, batch)
    expected = reference.loss(policy, batch, kl=0.3, estimator=estimator, placement=placement, reference=base)
    result = assert_equals_reference(
        policy, batch, expected, kl_coefficient=0.3, kl_estimator=estimator, kl_placement=placement
    )
    stats = result.token_stats[0]
    assert stats.reference_logprobs == pytest.approx(base["a"].tolist(), abs=1e-6)
    taken = [0.3 * (p - r) for p, r in zip(stats.trainer_logprobs, stats.reference_logprobs, strict=True)]
    carried = [batch[0].advantage - (kl if placement == "advantage" else 0) for kl in taken]
    assert stats.advantages == pytest.approx(carried, abs=1e-6)


@pytest.mark.parametrize("kind", ["truncated_token", "truncated_sequence", "masked_token", "masked_sequence"])
def test_each_correction_weighs_tokens(policy, batch, kind):
    near = [_sampled_near(policy, s) for s in batch]
    bounds = (1.2, 0.9)
    expected = reference.loss(policy, near, kind=kind, bounds=bounds)
    assert expected.item() != pytest.approx(reference.loss(policy, near).item(), abs=1e-4)
    assert_equals_reference(
        policy, near, expected, correction=kind, correction_bound=bounds[0], correction_low=bounds[1]
    )


def _sampled_near(policy, sequence):
    """The sequence as a sampler close to the policy reports it, some weights in and some out of bounds."""
    found = reference.token_logprobs(policy, sequence).tolist()
    noise = iter([0.05, -0.3, 0.02, 0.4] * len(found))
    values = iter(found)
    logprobs = tuple(next(values) + next(noise) if m else None for m in sequence.mask)
    return replace(sequence, logprobs=logprobs)


def test_the_entropy_bonus_has_its_gradient(policy, batch):
    expected = reference.loss(policy, batch, entropy=0.1)
    assert_equals_reference(policy, batch, expected, entropy_coefficient=0.1)


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_later_optimiser_steps_compare_with_the_policy_before_the_first(policy, batch, name):
    before = {s.trajectory_id: reference.token_logprobs(policy, s).detach() for s in batch}
    result, ours, _ = update(policy, batch, loss=name, epochs=2, learning_rate=1e-2)
    stored = {stats.trajectory_id: stats.trainer_logprobs for stats in result.token_stats}
    for trajectory, logprobs in before.items():
        assert stored[trajectory] == pytest.approx(logprobs.tolist(), abs=1e-6)
    # The second step's loss is that of the first step's weights against these log-probabilities.
    _, _, after_one = update(policy, batch, loss=name, epochs=1, learning_rate=1e-2)
    expected = reference.loss(
        after_one.model, batch, name=name, aggregation="token" if name == "cispo" else "sequence", old=before
    )
    theirs, _ = reference.gradients(after_one.model, expected)
    assert result.steps[1].loss == pytest.approx(expected.item(), abs=1e-6)
    assert_same_gradients(ours, theirs)
    assert result.steps[1].metrics["clip_ratio/region_mean"] > 0 or name == "gspo"


def test_minibatches_hold_whole_groups_and_are_normalised_by_themselves(policy, batch):
    result, *_ = update(policy, batch, optimizer_steps=2, learning_rate=1e-12)
    assert [step.trajectories for step in result.steps] == [2, 2]
    halves = {round(reference.loss(policy, half).item(), 8) for half in (batch[:2], batch[2:])}
    assert {round(step.loss, 8) for step in result.steps} == halves


def test_every_minibatch_compares_with_the_policy_before_the_first(policy, batch):
    before = {s.trajectory_id: reference.token_logprobs(policy, s).tolist() for s in batch}
    result, *_ = update(policy, batch, optimizer_steps=2, learning_rate=1e-2)
    assert len(result.steps) == 2
    for stats in result.token_stats:
        assert stats.trainer_logprobs == pytest.approx(before[stats.trajectory_id], abs=1e-6)


def test_segments_of_a_trajectory_count_as_one_sequence(policy):
    whole = make_sequence("a", turns=((20, 21),), advantage=1.0)
    later = make_sequence("a", prompt=(60, 61), turns=((22, 23, 24, 25),), advantage=1.0, offset=5)
    other = make_sequence("b", turns=((30,),), advantage=-1.0)
    result, *_ = update(policy, [whole, later, other], loss="grpo")
    values = [torch.cat([-torch.ones(2), -torch.ones(4)]), torch.ones(1)]
    assert result.steps[0].loss == pytest.approx(reference.aggregate(values, "sequence").item(), abs=1e-6)
    assert result.steps[0].trajectories == 2
    [stats, _] = result.token_stats
    assert stats.positions == [3, 4, 7, 8, 9, 10]


def test_a_group_without_signal_counts_but_needs_no_backward_pass(policy, batch, monkeypatch):
    quiet = [batch[0], batch[1], *(replace(s, advantage=0.0) for s in batch[2:])]
    passes = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda *a, **k: passes.append(1) or backward(*a, **k))
    result, ours, _ = update(policy, quiet)
    assert len(passes) == 1
    assert len(result.token_stats) == 4
    assert_same_gradients(ours, reference.gradients(policy, reference.loss(policy, quiet))[0])


def test_gradients_are_clipped_by_their_norm_and_adamw_steps(policy, batch):
    _, free, _ = update(policy, batch)
    result, clipped, trainer = update(policy, batch, max_grad_norm=1e-3, learning_rate=1e-2, weight_decay=0.1)
    norm = result.steps[0].grad_norm
    for name, before in policy.named_parameters():
        if name in free:
            torch.testing.assert_close(clipped[name], free[name] * 1e-3 / norm, atol=1e-9, rtol=1e-4)
            # The first step of AdamW (arXiv 1711.05101): both moments are the gradient's own.
            moved = before * (1 - 1e-2 * 0.1) - 1e-2 * clipped[name] / (clipped[name].abs() + 1e-8)
            torch.testing.assert_close(dict(trainer.model.named_parameters())[name], moved)


def test_gradient_checkpointing_changes_nothing(policy, batch):
    _, theirs, _ = update(policy, batch)
    _, ours, _ = update(policy, batch, gradient_checkpointing=True)
    assert_same_gradients(ours, theirs)


def test_a_gradient_that_is_not_finite_is_skipped(policy, batch):
    poisoned = replace(batch[0], advantage=1e308)
    before = copy.deepcopy(policy.state_dict())
    result, _, trainer = update(policy, [poisoned, *batch[1:]], loss="dr_grpo", constant_length=1)
    assert result.steps[0].skipped == "non_finite_gradient"
    assert not trainer.optimizer_state()
    assert all(torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())


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


def test_a_fresh_state_can_be_loaded(policy, batch):
    _, _, trainer = update(policy, batch)
    trainer.load_optimizer_state({})
    assert not trainer.optimizer_state()


def test_state_of_other_parameters_is_refused(policy, batch):
    _, _, trainer = update(policy, batch)
    state = trainer.optimizer_state()
    with pytest.raises(ValueError, match="other parameters"):
        trainer.load_optimizer_state({"other.exp_avg": torch.zeros(1)})
    with pytest.raises(ValueError, match="another rank"):
        trainer.load_optimizer_state({n: v[..., :1] if v.dim() else v for n, v in state.items()})


def test_the_callers_random_numbers_are_not_touched(policy, batch):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    update(policy, batch)
    assert torch.equal(torch.rand(3), expected)


def test_a_segment_that_comes_twice_is_refused(policy, batch):
    with pytest.raises(ValueError, match="came twice"):
        update(policy, [*batch, batch[0]])


def test_progress_counts_rows_over_all_optimiser_steps(policy, batch):
    seen = []
    trainer = Trainer(policy, UpdateSettings(epochs=2, optimizer_steps=2), temperature=1.0)
    trainer.update(batch, seed=0, progress=lambda done, total: seen.append((done, total)))
    # A row for each group: a look at the one that is not first, and two passes over both.
    assert seen == [(n, 5) for n in range(1, 6)]


def test_a_bfloat16_base_trains_its_float32_adapter(policy, batch):
    """Compute type of the base, master weights of the adapter; gradients as in float64, only coarser."""
    _, exact, _ = update(policy, batch)
    narrow = copy.deepcopy(policy)
    for name, parameter in narrow.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if "lora" in name else torch.bfloat16)
    result, ours, trainer = update(narrow, batch, learning_rate=1e-3)
    assert result.steps[0].skipped is None
    for name, gradient in ours.items():
        assert gradient.dtype == torch.float32
        apart = (gradient.double() - exact[name]).norm() / exact[name].norm()
        assert apart < 0.1, name
    changed = [
        name
        for name, p in trainer.model.named_parameters()
        if not torch.equal(p, dict(narrow.named_parameters())[name])
    ]
    assert changed
    assert all("lora" in name for name in changed)
