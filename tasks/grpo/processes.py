"""An update that is split over processes: each takes its share of the rows, and all take the same step.

Every process is given the same sequences, so each knows the weights of the whole optimiser step before it
computes anything, and gradients are summed, not averaged. Without a process group all of this does nothing.
Start the processes with torchrun, and `torch.distributed.init_process_group` before the first update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")


def are_several() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def own_share(rows: Sequence[T]) -> Sequence[T]:
    """The rows that this process computes."""
    return rows[distributed.get_rank() :: distributed.get_world_size()] if are_several() else rows


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace each gradient by its sum over the processes; one that had no row adds zeros."""
    if not are_several():
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)


def gather(value: T) -> list[T]:
    """The `value` of every process, by rank."""
    if not are_several():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
