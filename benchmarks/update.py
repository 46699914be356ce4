"""Tokens per second of an update, against what the matrix products in it would take alone.

    python benchmarks/update.py                     # 4 groups x 8 rollouts, prompt 512, completions 64
    python benchmarks/update.py --prompts 0 128 512 # the same as the prompt's share grows

`packed` computes a group's prompt once, `apart` gives every rollout a row of its own: the same gradients.
Random tokens, so nothing is learned; the work is that of real ones.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from dataclasses import replace
from typing import Any

import torch

from tasks.grpo.batches import TrainingSequence, pack
from tasks.grpo.trainer import Trainer
from tasks.models.adapters import create_adapter
from tasks.models.base import BUILT_IN, default_cache_dir, load_base_model, resolve_base_model
from tasks.settings import LoraSettings, UpdateSettings

SETTINGS = UpdateSettings()


def workload(groups: int, rollouts: int, prompt: int, completion: int) -> list[TrainingSequence]:
    """Groups of rollouts with a prompt of their own, every token of the completion sampled."""
    draw = random.Random(0)
    sequences = []
    for group in range(groups):
        shared = draw.choices(
            range(1000, 40000), k=prompt + 1
        )  # one at least: something must predict the first
        for rollout in range(rollouts):
            ids = (*shared, *draw.choices(range(1000, 40000), k=completion))
            mask = (*[False] * len(shared), *[True] * completion)
            logprobs = tuple(-10.0 if sampled else None for sampled in mask)
            advantage = 1.0 if rollout % 2 else -1.0
            name = f"{group}/{rollout}"
            sequences.append(TrainingSequence(name, str(group), ids, mask, logprobs, advantage, 0))
    return sequences


def apart(sequences: list[TrainingSequence]) -> list[TrainingSequence]:
    """The same, each in a group of its own, so that nothing is shared."""
    return [replace(sequence, group_id=sequence.trajectory_id) for sequence in sequences]


def matmul_rate(width: int, hidden: int) -> float:
    """FLOP/s of the model's largest product, 1024 tokens at a time; the best of five."""
    left, right = torch.randn(1024, width), torch.randn(width, hidden)
    best = 0.0
    for _ in range(5):
        clock = time.perf_counter()
        for _ in range(50):
            left @ right
        best = max(best, 50 * 2 * left.numel() * hidden / (time.perf_counter() - clock))
    return best


def needed_flops(model: Any, sequences: list[TrainingSequence]) -> float:
    """Matrix products of one update: frozen weights forward and for their inputs' gradients, the adapter
    forward and twice backward, the head likewise for sampled tokens alone, attention over what is seen."""
    config = model.get_base_model().config
    adapter = sum(p.numel() for p in model.parameters() if p.requires_grad)
    embeddings = {id(p) for p in model.get_input_embeddings().parameters()}
    embeddings |= {id(p) for p in model.get_output_embeddings().parameters()}
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad and id(p) not in embeddings)
    total = 0.0
    for row in pack(sequences, SETTINGS.tokens_per_batch):
        prefix = row.layout.prefix
        pairs = prefix**2 / 2 + sum(length * (prefix + length / 2) for length in row.layout.suffixes)
        width = config.num_attention_heads * model.get_base_model().get_decoder().layers[0].self_attn.head_dim
        # Forward: q k and p v. Backward: twice as much.
        total += 3 * 4 * pairs * width * config.num_hidden_layers
        total += len(row.token_ids) * (4 * frozen + 6 * adapter)
        total += len(row.targets) * 4 * config.hidden_size * config.vocab_size
    return total


def measure(model: Any, sequences: list[TrainingSequence], repeats: int) -> float:
    """Seconds of an update, the fastest of `repeats` after one to warm up."""
    trainer = Trainer(model, SETTINGS, temperature=1.0)
    seconds = []
    for seed in range(repeats + 1):
        clock = time.perf_counter()
        trainer.update(sequences, seed=seed)
        seconds.append(time.perf_counter() - clock)
    return min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default=BUILT_IN)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--prompts", type=int, nargs="+", default=[512])
    parser.add_argument("--completion", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--apart", action="store_true", help="measure rows of single rollouts, too")
    given = parser.parse_args()

    base = load_base_model(resolve_base_model(given.base, cache_dir=default_cache_dir()), "float32")
    model = create_adapter(base, LoraSettings(), seed=0)
    config = model.get_base_model().config
    rate = matmul_rate(config.hidden_size, config.intermediate_size)
    print(f"matrix products: {rate / 1e9:.0f} GFLOP/s on {torch.get_num_threads()} threads")
    print("| prompt | rows | seconds | trained tokens/s | tokens/s with prompts | of the matmul limit |")
    print("|---|---|---|---|---|---|")
    for prompt in given.prompts:
        packed = workload(given.groups, given.rollouts, prompt, given.completion)
        trained = sum(len(sequence.sampled) for sequence in packed)
        whole = sum(len(sequence.token_ids) for sequence in packed)
        for name, sequences in [("packed", packed), *([("apart", apart(packed))] if given.apart else [])]:
            seconds = measure(model, sequences, given.repeats)
            share = needed_flops(model, sequences) / rate / seconds
            print(
                f"| {prompt} | {name} | {seconds:.2f} | {trained / seconds:.0f} | {whole / seconds:.0f} "
                f"| {share:.0%} |"
            )
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
