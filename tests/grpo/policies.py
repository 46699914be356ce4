"""A tiny policy and a batch whose numbers a test can recompute. The conftest files hand on its fixtures."""

import copy
import random

import pytest

from tasks.grpo.batches import TrainingSequence
from tasks.models.adapters import create_adapter
from tasks.models.base import load_base_model
from tasks.settings import LoraSettings, UpdateSettings


@pytest.fixture(scope="session")
def trained_policy(tiny_model):
    """A tiny peft model in float64 whose adapter is not zero. Not to be changed: `policy` is a copy."""
    import torch

    model = create_adapter(load_base_model(tiny_model), LoraSettings(rank=4, alpha=8), seed=1).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


@pytest.fixture
def policy(trained_policy):
    return copy.deepcopy(trained_policy)


def make_sequence(
    trajectory="t", group="g", prompt=(10, 11, 12), turns=((20, 21), (22,)), between=(30, 31), **fields
):
    """A trajectory of several turns: a prompt, then sampled tokens with the environment's in between."""
    ids, mask = list(prompt), [False] * len(prompt)
    for number, turn in enumerate(turns):
        glue = between if number else ()
        ids += [*glue, *turn]
        mask += [False] * len(glue) + [True] * len(turn)
    draw = random.Random(trajectory)
    logprobs = tuple(-draw.random() * 5 if sampled else None for sampled in mask)
    given = {"advantage": draw.uniform(-1, 1), "logprobs": logprobs, "offset": 0, **fields}
    return TrainingSequence(trajectory, group, tuple(ids), tuple(mask), **given)


@pytest.fixture
def batch():
    """Two groups of two, of different lengths, with two turns each."""
    return [
        make_sequence("a", "g", turns=((20, 21, 22), (23,))),
        make_sequence("b", "g", turns=((20, 40), (41, 42))),
        make_sequence("c", "h", prompt=(50, 51), turns=((52,), (53, 54, 55))),
        make_sequence("d", "h", prompt=(50, 51), turns=((60,), (61,))),
    ]


def update(model, batch, *, temperature=1.0, seed=0, **settings):
    """Run an update of a copy of `model`; returns its result, the last gradients, and the trainer.

    Gradients are not clipped by their norm, and sampler and trainer are not reconciled, unless asked for.
    """
    from tasks.grpo.trainer import Trainer

    given = {"max_grad_norm": 1e9, "correction": "none", **settings}
    trainer = Trainer(copy.deepcopy(model), UpdateSettings(**given), temperature=temperature)
    gradients = {}

    def keep(*_):
        for name, parameter in trainer.model.named_parameters():
            if parameter.grad is not None:
                gradients[name] = parameter.grad.clone()

    trainer._optimizer.register_step_pre_hook(keep)
    return trainer.update(batch, seed=seed), gradients, trainer


def assert_same_gradients(ours, theirs, tolerance=1e-6):
    import torch

    assert ours
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], atol=tolerance / 10, rtol=tolerance)
