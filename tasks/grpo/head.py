"""From hidden states to log-probabilities and entropies, without ever keeping the logits.

A token's log-probability depends on its own hidden state alone. So while the logits of a chunk exist, its
gradient with respect to that state is computed too, (W[target] - softmax(z) W) / temperature, and the
backward pass only scales it: one product with the head less than computing the logits again. This needs a
head whose weights do not train; any other head is computed again in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK = 256  # tokens whose logits exist at once: 256 x 50k x 4 bytes is 50 MB


def head_logprobs(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of `targets` and entropies (nats, at `temperature`), in float32 or wider.

    Args:
        head: the layer from hidden states to logits.
        hidden: (tokens, width).
        targets: (tokens,) int64.
        entropy_gradient: whether entropies are differentiable.

    Returns:
        Two tensors of shape (tokens,).
    """
    chunks = zip(hidden.split(CHUNK), targets.split(CHUNK), strict=True)
    if type(head) is nn.Linear and not any(p.requires_grad for p in head.parameters()):
        found = [
            _FrozenHead.apply(h, t, head.weight, head.bias, temperature, entropy_gradient) for h, t in chunks
        ]
    else:
        found = [checkpoint(_from_logits, head, h, t, temperature, use_reentrant=False) for h, t in chunks]
    logprobs, entropies = (torch.cat(parts) for parts in zip(*found, strict=True))
    return logprobs, entropies if entropy_gradient else entropies.detach()


def _from_logits(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logprobs = (_wide(head(hidden)) / temperature).log_softmax(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], torch.special.entr(logprobs.exp()).sum(-1)


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _FrozenHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        temperature: float,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        logprobs = (_wide(nn.functional.linear(hidden, weight, bias)) / temperature).log_softmax(-1)
        found = logprobs.gather(-1, targets[:, None])[:, 0]
        probabilities = logprobs.exp()
        # entr is 0 where a token is impossible, and p log p would be 0 x -inf.
        entropies = torch.special.entr(probabilities).sum(-1)
        if ctx.needs_input_grad[0]:
            mean = (probabilities.to(weight.dtype) @ weight).to(found.dtype)
            of_logprobs = (weight[targets].to(found.dtype) - mean) / temperature
            if entropy_gradient:
                # dH / dz_j = -p_j (log p_j + H)
                pull = torch.special.entr(probabilities) - probabilities * entropies[:, None]
                of_entropies = (pull.to(weight.dtype) @ weight).to(found.dtype) / temperature
                ctx.save_for_backward(of_logprobs, of_entropies)
            else:
                ctx.save_for_backward(of_logprobs)
        ctx.entropy_gradient, ctx.dtype = entropy_gradient, hidden.dtype
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropies)
        return found, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_logprobs, *of_entropies = ctx.saved_tensors
        found = gradients[0][:, None] * of_logprobs
        if ctx.entropy_gradient:
            found = found + gradients[1][:, None] * of_entropies[0]
        return found.to(ctx.dtype), None, None, None, None, None
