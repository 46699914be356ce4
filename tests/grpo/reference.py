"""GRPO written once more, straight from the papers, in float64, one sequence after the other, no packing."""

import math

import torch


def token_logprobs(model, sequence, temperature=1.0):
    """Log-probabilities of the sampled tokens, by a plain forward pass over the sequence alone."""
    logits = model(input_ids=torch.tensor([sequence.token_ids])).logits[0].double() / temperature
    logprobs = logits.log_softmax(-1)
    return torch.stack([logprobs[i - 1, sequence.token_ids[i]] for i, m in enumerate(sequence.mask) if m])


def entropies(model, sequence):
    logprobs = model(input_ids=torch.tensor([sequence.token_ids])).logits[0].double().log_softmax(-1)
    values = -(logprobs.exp() * logprobs).sum(-1)
    return torch.stack([values[i - 1] for i, m in enumerate(sequence.mask) if m])


def surrogate(name, ratio, logprobs, advantage, low, high, dual=None):
    """What each paper minimises in a token, given its ratio."""
    if name == "reinforce":
        return -advantage * logprobs
    if name == "cispo":
        return -ratio.detach().clamp(1 - low, 1 + high) * advantage * logprobs
    values = []
    for r in ratio:
        plain, held = r * advantage, min(max(r, 1 - low), 1 + high) * advantage
        gain = plain if plain < held else held
        if dual is not None and advantage < 0 and gain < dual * advantage:
            gain = torch.tensor(dual * advantage, dtype=ratio.dtype)
        values.append(-torch.as_tensor(gain, dtype=ratio.dtype))
    return torch.stack(values)


def correction(kind, difference, high, low=0.0):
    """Importance weights of one sequence's tokens from the differences trainer - sampler."""
    if kind == "none":
        return torch.ones_like(difference)
    weights = difference.exp() if kind.endswith("token") else difference.sum().exp().expand(len(difference))
    if kind.startswith("truncated"):
        return torch.tensor([min(max(float(w), low), high) for w in weights], dtype=difference.dtype)
    return torch.stack([w if low <= w <= high else w * 0 for w in weights])


KL = {"k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: (-d).exp() - 1 + d}


def loss(
    model,
    sequences,
    *,
    name="dapo",
    aggregation="token",
    low=0.2,
    high=0.28,
    dual=None,
    old=None,
    kind="none",
    bounds=(2.0, 0.0),
    kl=0.0,
    estimator="k3",
    placement="loss",
    reference=None,
    entropy=0.0,
    temperature=1.0,
    constant=None,
):
    """The loss of a batch. `old` and `reference` map trajectories to log-probabilities."""
    per_sequence = []
    for sequence in sequences:
        lp = token_logprobs(model, sequence, temperature)
        lp_old = lp.detach() if old is None else old[sequence.trajectory_id]
        ratio = (lp - lp_old).exp()
        if name == "gspo":
            # s_i(theta), then the token-level variant: sg[s] * pi / sg[pi]
            ratio = (lp - lp_old).mean().exp().detach() * lp.exp() / lp.exp().detach()
        advantages = torch.full_like(lp, sequence.advantage).detach()
        if kl and placement == "advantage":
            advantages = advantages - kl * KL[estimator](lp_old - reference[sequence.trajectory_id])
        values = torch.cat(
            [
                surrogate(name, ratio[i : i + 1], lp[i : i + 1], float(advantages[i]), low, high, dual)
                for i in range(len(lp))
            ]
        )
        sampler = torch.tensor([x for x in sequence.logprobs if x is not None], dtype=torch.float64)
        values = values * correction(kind, lp_old - sampler, *bounds)
        if kl and placement == "loss":
            values = values + kl * KL[estimator](lp - reference[sequence.trajectory_id])
        if entropy:
            values = values - entropy * entropies(model, sequence)
        per_sequence.append(values)
    return aggregate(per_sequence, aggregation, constant)


def aggregate(per_sequence, aggregation, constant=None):
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
