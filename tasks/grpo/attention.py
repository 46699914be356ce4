"""Attention over a packed row without its dense mask: the prefix once, then every suffix behind it.

A dense mask over prefix + n suffixes costs (p + n s)^2 products a head, of which all but about
p^2 / 2 + n s (p + s / 2) are thrown away. Here the suffixes are a batch of their own, padded on the right to
the longest: what is padded comes after all that is real, so one causal mask fits them all.

It is registered with transformers as an attention of its own, which behaves as `sdpa` wherever no layout
comes with the call, so that sampling and probes through the same model are not touched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tasks.grpo.batches import Layout

NAME = "rollmill_packed"


def dense_mask(layout: Layout, device: torch.device, window: int | None = None) -> Tensor:
    """(1, 1, length, length) bool: True where a token (third axis) sees another (fourth axis).

    Args:
        window: how many positions back a token sees, itself included; None is all of them.
    """
    segments = torch.tensor(layout.segments, device=device)
    positions = torch.tensor(layout.positions, device=device)
    distance = positions[:, None] - positions[None, :]
    seen = ((segments[:, None] == segments[None, :]) | (segments == 0)[None, :]) & (distance >= 0)
    if window is not None:
        seen &= distance < window
    return seen[None, None]


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout | None = None,
    sliding_window: int | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer. query: (1, heads, length, size); key, value: (1, key heads, length, size).

    Returns:
        (1, length, heads, size), and no weights.
    """
    if layout is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    longest = layout.prefix + max(layout.suffixes)
    if sliding_window is not None and longest > sliding_window:
        mask = dense_mask(layout, query.device, sliding_window)
        return sdpa_attention_forward(module, query, key, value, mask, dropout=dropout, scaling=scaling)
    shared = query.shape[1] // key.shape[1]
    if shared > 1:
        key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
    found = _attend(query[0], key[0], value[0], layout, {"scale": scaling, "dropout_p": dropout})
    return found.transpose(0, 1)[None].contiguous(), None


def _attend(query: Tensor, key: Tensor, value: Tensor, layout: Layout, options: dict[str, Any]) -> Tensor:
    """(heads, length, size) each."""
    if len(layout.suffixes) == 1:
        return _causal(query, key, value, options)
    # Split, not sliced: the gradient of a slice is a tensor of zeros as large as the whole.
    parts = [layout.prefix, sum(layout.suffixes)]
    (query, *of_query), (key, *of_key), (value, *of_value) = (
        x.split(parts, dim=1) for x in (query, key, value)
    )
    of_prefix = _causal(query, key, value, options)
    padding = _Padding(layout.suffixes, query.device)
    suffix_query = padding.add(*of_query)
    longest = suffix_query.shape[2]
    seen = torch.ones(longest, layout.prefix + longest, dtype=torch.bool, device=query.device)
    of_suffixes = scaled_dot_product_attention(
        suffix_query,
        _behind(key, padding.add(*of_key)),
        _behind(value, padding.add(*of_value)),
        seen.tril(layout.prefix),
        **options,
    )
    return torch.cat([of_prefix, padding.remove(of_suffixes)], dim=1)


def _causal(query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor:
    return scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True, **options)[0]


def _behind(prefix: Tensor, suffixes: Tensor) -> Tensor:
    """(suffixes, heads, prefix + longest, size): the prefix in front of every suffix."""
    return torch.cat([prefix.expand(len(suffixes), -1, -1, -1), suffixes], dim=2)


class _Padding:
    """Turns suffixes end to end, (heads, tokens, size), into (suffixes, heads, longest, size), and back."""

    def __init__(self, lengths: tuple[int, ...], device: torch.device) -> None:
        self._shape = len(lengths), max(lengths)
        self._is_none = min(lengths) == max(lengths)
        length = torch.tensor(lengths, device=device)[:, None]
        column = torch.arange(max(lengths), device=device)[None, :]
        # Padding repeats a suffix's last token, which is as good as any.
        self._take = (length.cumsum(0) - length + column.minimum(length - 1)).flatten()
        self._keep = (column < length).flatten().nonzero()[:, 0]

    def add(self, x: Tensor) -> Tensor:
        tokens = x.transpose(0, 1)
        tokens = tokens if self._is_none else tokens.index_select(0, self._take)
        return tokens.reshape(*self._shape, *tokens.shape[1:]).transpose(1, 2)

    def remove(self, x: Tensor) -> Tensor:
        tokens = x.transpose(1, 2).flatten(0, 1)
        tokens = tokens if self._is_none else tokens.index_select(0, self._keep)
        return tokens.transpose(0, 1)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
