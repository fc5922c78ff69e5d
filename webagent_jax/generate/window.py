"""The pages of all running sequences side by side: what decoding on CPU works on.

To read pages through tables at every step costs a CPU more than the matmuls do. So the pages are
copied into a window once a dispatch, and what the dispatch wrote is copied back.

Attention works column by column with products of one fixed shape and adds the columns up in order.
A column that a sequence has not reached adds exact zeros, so a sequence gets the same bits however
wide the window is: it may grow and shrink with the company.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from webagent_jax.generate.cache import LayerPages, Pages
from webagent_jax.policy.kernels.common import MASKED


class LayerWindow(NamedTuple):
    """P columns of pages for each of B sequences."""

    keys: Array  # [P, B, K, E, S]
    values: Array  # [P, B, K, S, E]


Window = tuple[LayerWindow, ...]
"""One for each layer."""


def copied(pages: Pages, tables: Array) -> Window:
    """The pages that `tables` [B, P] name."""
    return tuple(LayerWindow(layer.keys[tables.T], layer.values[tables.T]) for layer in pages)


def copied_back(pages: Pages, window: Window, columns: Array, homes: Array) -> Pages:
    """`pages` with those columns of the window in them: `columns` [B, M], into `homes` [B, M].

    Where a sequence names a page twice, it must be the same column.
    """
    sequence = jnp.arange(len(columns))[:, None]

    def put(layer: LayerPages, seen: LayerWindow) -> LayerPages:
        return LayerPages(
            layer.keys.at[homes].set(seen.keys[columns, sequence]),
            layer.values.at[homes].set(seen.values[columns, sequence]),
        )

    return tuple(map(put, pages, window))


def write_tokens(layer: LayerWindow, key: Array, value: Array, position: Array) -> LayerWindow:
    """Stores one token of each sequence: key and value [B, K, E] at `position` [B].

    A position beyond the window, which only a slot out of use can have, is not stored.
    """
    size = layer.keys.shape[-1]
    sequence = jnp.arange(key.shape[0])[:, None]
    head = jnp.arange(key.shape[1])[None, :]
    column, offset = (position // size)[:, None], (position % size)[:, None]
    keys = layer.keys.at[column, sequence, head, :, offset]
    values = layer.values.at[column, sequence, head, offset]
    return LayerWindow(
        keys.set(key, unique_indices=True, mode="drop"),
        values.set(value, unique_indices=True, mode="drop"),
    )


def attend(q: Array, layer: LayerWindow, position: Array) -> Array:
    """Attention of one token per sequence, q [B, H, E], to all that is stored up to `position` [B].

    Returns [B, H, E]. Scores and softmax in float32.
    """
    columns, batch, kv_heads, width, size = layer.keys.shape
    grouped = q.reshape(batch, kv_heads, -1, width)
    grouped = jnp.broadcast_to(grouped, (columns, *grouped.shape))
    scores = jnp.einsum(
        "pbkge,pbkes->pbkgs", grouped, layer.keys, preferred_element_type=jnp.float32
    )
    stored = jnp.arange(columns * size).reshape(columns, 1, size)
    visible = (stored <= position[None, :, None])[:, :, None, None, :]
    scores = jnp.where(visible, scores * width**-0.5, MASKED)
    largest = jnp.max(_over_columns(jnp.maximum, scores), axis=-1, keepdims=True)
    weights = jnp.exp(scores - largest[None])
    total = jnp.sum(_over_columns(jnp.add, weights), axis=-1, keepdims=True)
    out = jnp.einsum(
        "pbkgs,pbkse->pbkge",
        weights.astype(layer.values.dtype),
        layer.values,
        preferred_element_type=jnp.float32,
    )
    return (_over_columns(jnp.add, out) / total).astype(q.dtype).reshape(q.shape)


def _over_columns(combine: Callable[[Array, Array], Array], columns: Array) -> Array:
    """Combines the columns element by element, first to last.

    Not a reduction of the library, which groups the terms, and even picks the routine for what is
    computed next to it, by the size of the whole array: then the number would show in the last
    bits.
    """
    return functools.reduce(combine, list(columns))
