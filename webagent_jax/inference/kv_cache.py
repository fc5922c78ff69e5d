"""Paged KV cache: layouts of the pages, and writes to them.

A page stores the keys and values of a fixed number of tokens; a page table maps each sequence to
its pages (`prefix_cache`). A prefix shared by many sequences is stored once, outside the pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Self

import jax.numpy as jnp
from jax import Array

from webagent_jax.policy import ModelConfig

Layout = Literal["transposed", "rows", "fused"]
"""Layout of the pages: `TransposedPages`, `RowPages` or `FusedPages`."""


class TransposedPages(NamedTuple):
    """N pages of S tokens of one layer, in the layouts that a CPU multiplies fastest."""

    keys: Array  # [N, K, E, S]
    values: Array  # [N, K, S, E]

    def write_tokens(self, key: Array, value: Array, pages: Array, offsets: Array) -> Self:
        """Store a token per sequence: key and value [B, K, E] in pages [B] at offsets [B]."""
        head, page, offset = _token_indices(key, pages, offsets)
        return self._replace(
            keys=self.keys.at[page, head, :, offset].set(key),
            values=self.values.at[page, head, offset].set(value),
        )

    def write_pages(self, keys: Array, values: Array, pages: Array) -> Self:
        """Store keys and values [M, K, S, E] in pages [M]."""
        return self._replace(
            keys=self.keys.at[pages].set(keys.swapaxes(-1, -2)),
            values=self.values.at[pages].set(values),
        )

    def gather(self, pages: Array) -> tuple[Array, Array]:
        """Return keys [B, K, E, C * S] and values [B, K, C * S, E] of pages [B, C]."""
        # The pages of a block side by side: [B, C, K, E, S] to [B, K, E, C, S], values alike.
        keys = self.keys[pages].transpose(0, 2, 3, 1, 4)
        values = self.values[pages].transpose(0, 2, 1, 3, 4)
        return keys.reshape(*keys.shape[:3], -1), _merge_pages(values)


class RowPages(NamedTuple):
    """N pages of S tokens of one layer, one row of E numbers per token and head.

    An accelerator reads the pages of each head as they are, without a transposition. E should be a
    multiple of 128, the width of its registers.
    """

    keys: Array  # [N, K, S, E]
    values: Array  # [N, K, S, E]

    def write_tokens(self, key: Array, value: Array, pages: Array, offsets: Array) -> Self:
        """Store a token per sequence: key and value [B, K, E] in pages [B] at offsets [B]."""
        head, page, offset = _token_indices(key, pages, offsets)
        return self._replace(
            keys=self.keys.at[page, head, offset].set(key),
            values=self.values.at[page, head, offset].set(value),
        )

    def write_pages(self, keys: Array, values: Array, pages: Array) -> Self:
        """Store keys and values [M, K, S, E] in pages [M]."""
        return self._replace(
            keys=self.keys.at[pages].set(keys), values=self.values.at[pages].set(values)
        )

    def gather(self, pages: Array) -> tuple[Array, Array]:
        """Return keys [B, K, E, C * S] and values [B, K, C * S, E] of pages [B, C]."""
        keys, values = _gather_rows(self.keys, pages), _gather_rows(self.values, pages)
        # The matmul reads the keys as they are; this transposition is not computed.
        return keys.swapaxes(-1, -2), values


class FusedPages(NamedTuple):
    """N pages of S tokens of one layer, one row per token and head: its key, then its value.

    For heads narrower than the registers of an accelerator: rows of E = 64 numbers would be padded
    to twice their size.
    """

    keys_values: Array  # [N, K, S, 2E]

    def write_tokens(self, key: Array, value: Array, pages: Array, offsets: Array) -> Self:
        """Store a token per sequence: key and value [B, K, E] in pages [B] at offsets [B]."""
        head, page, offset = _token_indices(key, pages, offsets)
        rows = jnp.concatenate([key, value], axis=-1)
        return self._replace(keys_values=self.keys_values.at[page, head, offset].set(rows))

    def write_pages(self, keys: Array, values: Array, pages: Array) -> Self:
        """Store keys and values [M, K, S, E] in pages [M]."""
        rows = jnp.concatenate([keys, values], axis=-1)
        return self._replace(keys_values=self.keys_values.at[pages].set(rows))

    def gather(self, pages: Array) -> tuple[Array, Array]:
        """Return the rows of pages [B, C] as keys [B, K, 2E, C * S] and values [B, K, C * S, 2E].

        `paged_attention` multiplies the other half of the rows by 0, or discards its result.
        """
        rows = _gather_rows(self.keys_values, pages)
        return rows.swapaxes(-1, -2), rows


LayerKVPages = TransposedPages | RowPages | FusedPages
"""Keys and values of one layer."""

KVPages = tuple[LayerKVPages, ...]
"""Pages of all layers."""


class LayerSharedPrefix(NamedTuple):
    """Keys and values of one layer for the A tokens of the shared prefix."""

    keys: Array  # [K, E, A]
    values: Array  # [K, A, E]


SharedPrefix = tuple[LayerSharedPrefix, ...]
"""Shared prefix of all layers; empty without a shared prefix."""


def init_pages(config: ModelConfig, pages: int, page_tokens: int, layout: Layout) -> KVPages:
    """Return zero-filled pages for every layer."""
    heads, width = config.num_kv_heads, config.head_dim
    rows = (pages, heads, page_tokens, width)
    shapes: dict[Layout, tuple[Callable[..., LayerKVPages], tuple[tuple[int, ...], ...]]] = {
        "transposed": (TransposedPages, ((pages, heads, width, page_tokens), rows)),
        "rows": (RowPages, (rows, rows)),
        "fused": (FusedPages, ((*rows[:3], 2 * width),)),
    }
    make_layer, arrays = shapes[layout]
    return tuple(
        make_layer(*(jnp.zeros(shape, config.dtype) for shape in arrays))
        for _ in range(config.num_layers)
    )


def page_tokens(layer: LayerKVPages) -> int:
    """Return the number of tokens of a page."""
    # The last array of every layout is [N, K, S, ...].
    return layer[-1].shape[2]


def kv_bytes_per_token(config: ModelConfig) -> int:
    """Return the bytes of keys and values of one token over all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * config.itemsize


def write_pages(layer: LayerKVPages, keys: Array, values: Array, pages: Array) -> LayerKVPages:
    """Fill whole pages: keys and values [M, Q * S, K, E] into `pages` [M, Q]."""
    pages = pages.reshape(-1)
    # [M * Q, S, K, E] to [M * Q, K, S, E].
    keys, values = (x.reshape(len(pages), -1, *x.shape[2:]).swapaxes(1, 2) for x in (keys, values))
    return layer.write_pages(keys, values, pages)


def _token_indices(key: Array, pages: Array, offsets: Array) -> tuple[Array, Array, Array]:
    """Return head, page and offset; they broadcast to [B, K] of a key [B, K, E]."""
    return jnp.arange(key.shape[1])[None, :], pages[:, None], offsets[:, None]


def _gather_rows(rows: Array, pages: Array) -> Array:
    """Return the rows [N, K, S, E] of pages [B, C] as [B, K, C * S, E].

    Indexed by page and head, each slice is contiguous, and no transposition follows.
    """
    head = jnp.arange(rows.shape[1])[None, :, None]
    return _merge_pages(rows[pages[:, None, :], head])


def _merge_pages(rows: Array) -> Array:
    """Reshape [B, K, C, S, E] to [B, K, C * S, E]."""
    return rows.reshape(*rows.shape[:2], -1, rows.shape[-1])
