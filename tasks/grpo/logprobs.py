"""Log-probabilities and entropies of the sampled tokens of a row, computed only where they are needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tasks.grpo.batches import PackedRow

CHUNK = 256  # tokens whose logits exist at once: 256 x 50k x 4 bytes is 50 MB


def row_logprobs(model: Any, row: PackedRow, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (nats, at `temperature`) of a row's sampled tokens, in order.

    Args:
        model: a peft model around a causal language model of transformers.

    Returns:
        Two differentiable float32 tensors of shape (tokens,).
    """
    causal = model.get_base_model()
    device = next(model.parameters()).device
    hidden = causal.get_decoder()(
        input_ids=torch.tensor([row.token_ids], device=device),
        position_ids=torch.tensor([row.positions], device=device),
        attention_mask=row.attention_mask(device),
        use_cache=False,
    ).last_hidden_state[0]
    hidden = hidden[torch.tensor(row.predictors, device=device)]
    targets = torch.tensor(row.targets, device=device)
    head = causal.get_output_embeddings()
    chunks = [
        checkpoint(_chunk, head, *chunk, temperature, use_reentrant=False)
        for chunk in zip(hidden.split(CHUNK), targets.split(CHUNK), strict=True)
    ]
    logprobs, entropies = zip(*chunks, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def _chunk(head: Any, hidden: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logprobs = (head(hidden).float() / temperature).log_softmax(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)
