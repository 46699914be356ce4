"""L2 (prime-rl 2562, TRL 2647, verl 3332): losses were averaged over micro-batches or processes of unequal
size, so that the gradient depended on how the step was cut."""

import multiprocessing

import pytest
import torch

from tests.grpo.policies import assert_same_gradients, update

CHOICES = [
    {"loss": "dapo"},
    {"loss": "grpo"},
    {"loss": "gspo", "entropy_coefficient": 0.1},
    {"loss": "dr_grpo", "constant_length": 16, "correction": "truncated_sequence"},
]


@pytest.mark.parametrize("settings", CHOICES)
@pytest.mark.parametrize("budget", [1, 12, 16])
def test_rows_of_any_size_give_the_same_gradients(policy, batch, settings, budget):
    whole, theirs, _ = update(policy, batch, **settings)
    cut, ours, _ = update(policy, batch, tokens_per_batch=budget, **settings)
    assert cut.steps[0].forward_tokens >= whole.steps[0].forward_tokens
    assert cut.steps[0].loss == pytest.approx(whole.steps[0].loss, abs=1e-6)
    assert cut.steps[0].metrics == pytest.approx(whole.steps[0].metrics, abs=1e-6)
    assert_same_gradients(ours, theirs)


def test_two_processes_take_the_same_steps_as_one(policy, batch, tmp_path):
    settings = {"loss": "grpo", "epochs": 2, "learning_rate": 1e-3}
    torch.save((policy, batch, settings), tmp_path / "given.pt")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_one_of_two, args=(rank, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    result, gradients, _ = update(policy, batch, **settings)
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    for rank in range(2):
        theirs, of_rank = torch.load(tmp_path / f"found-{rank}.pt", weights_only=False)
        assert_same_gradients(of_rank, gradients)
        for ours, other in zip(result.steps, theirs.steps, strict=True):
            assert other.loss == pytest.approx(ours.loss, abs=1e-6)
            assert other.metrics == pytest.approx(ours.metrics, abs=1e-6)
        assert [s.trajectory_id for s in theirs.token_stats] == [s.trajectory_id for s in result.token_stats]


def _one_of_two(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    policy, batch, settings = torch.load(folder / "given.pt", weights_only=False)
    result, gradients, _ = update(policy, batch, **settings)
    torch.save((result, gradients), folder / f"found-{rank}.pt")
    torch.distributed.destroy_process_group()
