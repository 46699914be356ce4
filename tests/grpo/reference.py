"""GRPO written once more, straight from the papers, in float64, one sequence after the other, no packing."""

import math

import torch


def token_logprobs(model, sequence, temperature=1.0):
    """Log-probabilities of the sampled tokens, by a plain forward pass over the sequence alone."""
    logits = model(input_ids=torch.tensor([sequence.token_ids])).logits[0].double() / temperature
    logprobs = logits.log_softmax(-1)
    return torch.stack([logprobs[i - 1, sequence.token_ids[i]] for i, m in enumerate(sequence.mask) if m])


def loss(
    model,
    sequences,
    *,
    name="dapo",
    aggregation="token",
    low=0.2,
    high=0.28,
    old=None,
    bound=None,
    kl=0.0,
    estimator="k3",
    reference=None,
    temperature=1.0,
    constant=None,
):
    """The loss of a batch. `old` and `reference` map trajectories to log-probabilities."""
    per_sequence = []
    for sequence in sequences:
        lp = token_logprobs(model, sequence, temperature)
        lp_old = lp.detach() if old is None else old[sequence.trajectory_id]
        ratio, advantage = (lp - lp_old).exp(), sequence.advantage
        if name == "gspo":
            # s_i(theta), then the token-level variant: sg[s] * pi / sg[pi]
            ratio = (lp - lp_old).mean().exp().detach() * lp.exp() / lp.exp().detach()
        if name in ("grpo", "dapo", "dr_grpo", "gspo"):
            values = -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        elif name == "cispo":
            values = -ratio.detach().clamp(1 - low, 1 + high) * advantage * lp
        else:
            values = -advantage * lp
        if bound is not None:
            sampler = torch.tensor([x for x in sequence.logprobs if x is not None], dtype=torch.float64)
            values = values * (lp_old - sampler).exp().clamp(max=bound)
        if kl:
            d = lp - reference[sequence.trajectory_id]
            values = values + kl * {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d}[estimator]
        per_sequence.append(values)
    if aggregation == "token":
        return sum(v.sum() for v in per_sequence) / sum(len(v) for v in per_sequence)
    if aggregation == "sequence":
        return sum(v.mean() for v in per_sequence) / len(per_sequence)
    return sum(v.sum() for v in per_sequence) / (len(per_sequence) * constant)


def gradients(model, value):
    """Gradients of `value` by parameter, and their norm."""
    model.zero_grad(set_to_none=True)
    value.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return found, math.sqrt(sum(float(g.double().square().sum()) for g in found.values()))
