"""Safetensors written one tensor after the other, so that a model never lies in memory as a whole.

The format: the header's length in 8 bytes, the header as JSON, then the tensors, row by row and end to end
(https://github.com/huggingface/safetensors#format). The library's own writer wants all tensors at once, and
most of its time here went into the pages of memory that they took.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ALIGNMENT = 8  # bytes: where the tensors begin
NAMES = {"float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}  # of dtypes


def write_tensors(file: Path, like: Mapping[str, Tensor], make: Callable[[str], Tensor]) -> None:
    """Write a tensor for each name in `like`, made when its turn comes.

    Args:
        like: tensors of the same shapes; floating-point ones are written as float32, others as they are.
        make: gives the tensor to write, on the CPU, with the shape and dtype that were announced.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in like.items():
        dtype = "float32" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
        size = tensor.numel() * (4 if tensor.is_floating_point() else tensor.element_size())
        header[name] = {
            "dtype": NAMES[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + size],
        }
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for name in like:
            out.write(make(name).reshape(-1).numpy().data)
