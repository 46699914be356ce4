"""The head: log-probabilities, entropies and their gradients, whether its weights train or not."""

import pytest
import torch

from tasks.grpo import head as module
from tasks.grpo.head import head_logprobs


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_values_and_gradients_equal_plain_autograd(monkeypatch, trains, bias, entropy_gradient):
    monkeypatch.setattr(module, "CHUNK", 3)
    torch.manual_seed(0)
    head = torch.nn.Linear(6, 11, bias=bias).double().requires_grad_(trains)
    hidden = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 11, (8,))
    weights = torch.randn(2, 8, dtype=torch.float64)

    plain = (head(hidden) / 0.7).log_softmax(-1)
    logprobs, entropies = plain.gather(1, targets[:, None])[:, 0], -(plain.exp() * plain).sum(-1)
    value = (weights[0] * logprobs).sum()
    if entropy_gradient:
        value = value + (weights[1] * entropies).sum()
    wanted = [hidden, *(head.parameters() if trains else [])]
    expected = torch.autograd.grad(value, wanted, allow_unused=True)

    found, entropy = head_logprobs(head, hidden, targets, 0.7, entropy_gradient=entropy_gradient)
    torch.testing.assert_close(found, logprobs)
    torch.testing.assert_close(entropy, entropies.detach() if not entropy_gradient else entropies)
    assert entropy.requires_grad == entropy_gradient
    value = (weights[0] * found).sum()
    if entropy_gradient:
        value = value + (weights[1] * entropy).sum()
    for ours, theirs in zip(torch.autograd.grad(value, wanted), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_impossible_tokens_leave_entropy_and_gradient_finite():
    """L3 (SkyRL 1635): a vocabulary padded with -inf gives 0 x -inf in p log p."""
    head = torch.nn.Linear(2, 3, bias=True).requires_grad_(False)
    head.bias[2] = -torch.inf
    hidden = torch.zeros(1, 2, requires_grad=True)
    logprobs, entropies = head_logprobs(head, hidden, torch.tensor([0]), 1.0, entropy_gradient=True)
    (logprobs + entropies).sum().backward()
    assert torch.isfinite(entropies).all()
    assert torch.isfinite(hidden.grad).all()


def test_bfloat16_is_summed_in_float32():
    head = torch.nn.Linear(4, 9).bfloat16().requires_grad_(False)
    hidden = torch.randn(5, 4, dtype=torch.bfloat16, requires_grad=True)
    logprobs, _ = head_logprobs(head, hidden, torch.zeros(5, dtype=torch.int64), 1.0)
    logprobs.sum().backward()
    assert (logprobs.dtype, hidden.grad.dtype) == (torch.float32, torch.bfloat16)
