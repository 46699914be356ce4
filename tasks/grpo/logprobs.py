"""Log-probabilities and entropies of a packed row's sampled tokens, and the check that packing is exact."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tasks.grpo.attention import NAME, dense_mask
from tasks.grpo.batches import PackedRow, TrainingSequence, pack
from tasks.grpo.head import head_logprobs

# Largest difference from an ordinary forward pass, in nats, by the narrowest type that the model computes in.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-2}
NARROW_TOLERANCE = 0.5  # bfloat16 and float16: 8 bits of a logit of 50 are 0.2


def row_logprobs(
    model: Any, row: PackedRow, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (nats, at `temperature`) of a row's sampled tokens, in order.

    Args:
        model: a peft model around a causal language model of transformers, made ready by `use_packing`.
        entropy_gradient: whether the entropies are differentiable.

    Returns:
        Two tensors of shape (tokens,), float32 or wider.
    """
    causal = model.get_base_model()
    device = causal.get_input_embeddings().weight.device
    hidden = causal.get_decoder()(
        input_ids=torch.tensor([row.token_ids], device=device),
        position_ids=torch.tensor([row.layout.positions], device=device),
        # A model that does not hand on the layout still gets the right mask.
        attention_mask=dense_mask(row.layout, device),
        layout=row.layout,
        use_cache=False,
    ).last_hidden_state[0]
    hidden = hidden[torch.tensor(row.predictors, device=device)]
    targets = torch.tensor(row.targets, device=device)
    return head_logprobs(
        causal.get_output_embeddings(), hidden, targets, temperature, entropy_gradient=entropy_gradient
    )


def use_packing(model: Any) -> None:
    """Make `model` attend as packed rows need it, and check on a small row that nothing else is different.

    Raises:
        ValueError: log-probabilities of a packed row are not those of its sequences one by one. The model
            carries state from token to token outside its attention, numbers its positions in its own way,
            or does more after its last layer than its head.
    """
    causal = model.get_base_model()
    row = _probe(causal.config.get_text_config().vocab_size)
    was_training = model.training
    model.eval()  # no dropout
    with torch.no_grad():
        expected = torch.cat([_plain(model, sequence) for sequence in row.sequences])
        causal.set_attn_implementation(NAME)
        difference = float((row_logprobs(model, row, 1.0)[0] - expected).abs().max())
    model.train(was_training)
    allowed = TOLERANCES.get(causal.dtype, NARROW_TOLERANCE)
    if not difference <= allowed:
        raise ValueError(
            f"{type(causal).__name__} cannot be trained on packed rows: its log-probabilities there differ "
            f"by up to {difference:.3g} from those of the same sequences one by one (accepted: {allowed:g}). "
            "Choose a base model with plain causal attention and a linear head."
        )


def _probe(vocabulary: int) -> PackedRow:
    """Two sequences with a common prompt, the first of which would show in the second if anything leaked."""
    prompt, replies = (7, 11, 13, 17), ((19, 23, 29, 31), (37, 41, 43))
    sequences = []
    for number, reply in enumerate(replies):
        ids = tuple(token % vocabulary for token in (*prompt, *reply))
        mask = (*([False] * len(prompt)), *([True] * len(reply)))
        logprobs = tuple(0.0 if sampled else None for sampled in mask)
        sequences.append(TrainingSequence(str(number), "probe", ids, mask, logprobs, 0.0, 0))
    [row] = pack(sequences, budget=sum(len(sequence.token_ids) for sequence in sequences))
    return row


def _plain(model: Any, sequence: TrainingSequence) -> Tensor:
    device = model.get_base_model().get_input_embeddings().weight.device
    ids = torch.tensor([sequence.token_ids], device=device)
    logits = model(input_ids=ids, use_cache=False).logits[0]
    logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    return torch.stack([logprobs[index - 1, sequence.token_ids[index]] for index in sequence.sampled])
