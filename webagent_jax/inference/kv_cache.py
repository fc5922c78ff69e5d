"""Paged KV cache and attention over it.

A page stores the keys and values of a fixed number of tokens; a page table maps each sequence to
its pages (`prefix_cache`). A prefix shared by many sequences is stored once, outside the pages.
Attention processes the shared prefix first, in one matmul for all sequences, so a decode step reads
it once (Hydragen, arXiv 2402.05099). Then it processes a few columns of the page tables at a time
with an online softmax (Milakov & Gimelshein, arXiv 1805.02867). It stops at the longest sequence.
Masked positions contribute exact zeros, so other sequences of the batch do not affect the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from webagent_jax.inference.prefix_cache import NULL_PAGE
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.kernels.common import MASKED

_MAX_PREFIX_SCORES = 2**18  # per head and step; larger blocks do not fit the CPU cache

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

        `paged_attention` multiplies the other half of the rows by 0, or leaves out its result.
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


class AttentionMetadata(NamedTuple):
    """Page tables and query positions of B sequences with T queries each."""

    page_tables: Array  # int32 [B, P]; page p holds the sequence's own tokens from p * S on
    query_positions: Array  # int32 [B, T], in own tokens; a query attends up to its position
    num_columns: Array  # int32; leading columns of the page tables that any sequence uses
    has_prefix: Array  # bool [B]; whether the shared prefix precedes the sequence's own tokens


class _OnlineSoftmax(NamedTuple):
    """Running state of an online softmax over R query rows."""

    max_score: Array  # float32 [..., R, 1], largest score so far
    sum_exp: Array  # float32 [..., R, 1], sum of the weights exp(score - max_score)
    weighted_values: Array  # float32 [..., R, E], sum of the values times their weights

    @classmethod
    def empty(cls, *shape: int) -> _OnlineSoftmax:
        """Return the state before any key; `shape` is that of `weighted_values`."""
        scalars = (*shape[:-1], 1)
        return cls(
            jnp.full(scalars, MASKED, jnp.float32),
            jnp.zeros(scalars, jnp.float32),
            jnp.zeros(shape, jnp.float32),
        )

    def update(self, scores: Array, values: Array) -> _OnlineSoftmax:
        """Return the state after `values` [..., S, E] with float32 `scores` [..., R, S]."""
        # The sums so far are relative to the old maximum.
        max_score = jnp.maximum(self.max_score, jnp.max(scores, axis=-1, keepdims=True))
        rescale = jnp.exp(self.max_score - max_score)
        weights = jnp.exp(scores - max_score)
        out = jnp.matmul(weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
        sum_exp = self.sum_exp * rescale + jnp.sum(weights, axis=-1, keepdims=True)
        return _OnlineSoftmax(max_score, sum_exp, self.weighted_values * rescale + out)


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


def paged_attention(
    q: Array,
    layer: LayerKVPages,
    prefix: LayerSharedPrefix | None,
    metadata: AttentionMetadata,
    *,
    pages_per_block: int,
    mesh: Mesh | None = None,
) -> Array:
    """Attend from q [B, T, H, E] to the cached tokens of each sequence.

    Scores and softmax are float32.

    Args:
        q: queries [B, T, H, E].
        layer: pages of the layer.
        prefix: keys and values of the shared prefix; None if no sequence uses it.
        metadata: page tables and query positions of the batch.
        pages_per_block: page-table columns per matmul. More columns make wider matmuls and more
            padding.
        mesh: mesh of the engine; None for a single device.

    Returns:
        [B, T, H, E] in the dtype of `q`.
    """
    attend = partial(_paged_attention, pages_per_block=pages_per_block)
    # The compiler partitions matmuls by heads, but not a gather by page and head. Heads that do not
    # divide over the devices are replicated.
    devices = 1 if mesh is None else mesh.shape["tensor"]
    is_replicated = layer[-1].shape[1] % devices != 0
    if devices == 1 or is_replicated or isinstance(layer, TransposedPages):
        return attend(q, layer, prefix, metadata)
    by_head = PartitionSpec(None, "tensor")
    heads = PartitionSpec(None, None, "tensor")
    specs = (heads, by_head, PartitionSpec("tensor"), PartitionSpec())
    sharded = jax.shard_map(attend, mesh=mesh, in_specs=specs, out_specs=heads, check_vma=False)
    return sharded(q, layer, prefix, metadata)


def _paged_attention(
    q: Array,
    layer: LayerKVPages,
    prefix: LayerSharedPrefix | None,
    metadata: AttentionMetadata,
    *,
    pages_per_block: int,
) -> Array:
    batch, queries, heads, width = q.shape
    _, kv_heads, _, row_width = layer[-1].shape
    span = pages_per_block * page_tokens(layer)
    group = heads // kv_heads
    # Query heads of one key-value head are stacked along the rows: one matmul serves all of them.
    q = (q * width**-0.5).reshape(batch, queries, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, group * queries, width)
    # Last position that each row of q attends to.
    last = jnp.tile(metadata.query_positions, (1, group))[:, None, :, None]
    offset = jnp.arange(span)[None, None, None]
    padding = (0, -metadata.page_tables.shape[1] % pages_per_block)
    tables = jnp.pad(metadata.page_tables, ((0, 0), padding), constant_values=NULL_PAGE)

    def attend_to_block(index: Array, state: _OnlineSoftmax) -> _OnlineSoftmax:
        pages = jax.lax.dynamic_slice_in_dim(
            tables, index * pages_per_block, pages_per_block, axis=1
        )
        keys, values = layer.gather(pages)
        scores = jnp.matmul(q, keys, preferred_element_type=jnp.float32)
        # Position 0 is visible to every query, so no row is fully masked after the first block.
        return state.update(jnp.where(index * span + offset <= last, scores, MASKED), values)

    state = _OnlineSoftmax.empty(*q.shape)
    if prefix is not None:
        state = _attend_to_prefix(q, prefix, metadata.has_prefix)
    # Rows of `FusedPages` contain the key before the value: zeros in place of the other part.
    before, after = [(0, 0)] * 3 + [(row_width - width, 0)], [(0, 0)] * 3 + [(0, row_width - width)]
    q = jnp.pad(q, after)
    state = state._replace(weighted_values=jnp.pad(state.weighted_values, before))

    state = jax.lax.fori_loop(
        0, -(-metadata.num_columns // pages_per_block), attend_to_block, state
    )
    out = state.weighted_values[..., row_width - width :] / state.sum_exp
    out = out.reshape(batch, kv_heads, group, queries, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, queries, heads, width).astype(q.dtype)


def _attend_to_prefix(q: Array, prefix: LayerSharedPrefix, has_prefix: Array) -> _OnlineSoftmax:
    """Return the softmax state after the shared prefix; empty for sequences without it.

    Args:
        q: scaled queries [B, K, R, E].
        prefix: keys and values of the shared prefix.
        has_prefix: bool [B]; sequences without the prefix get the empty state to the bit.
    """
    batch, kv_heads, rows, width = q.shape
    # Rows of all sequences share one matmul per key-value head: the prefix is read once.
    q = q.swapaxes(0, 1).reshape(kv_heads, batch * rows, width)
    state = _OnlineSoftmax.empty(*q.shape)
    block_tokens = max(1, _MAX_PREFIX_SCORES // (batch * rows))
    for start in range(0, prefix.keys.shape[-1], block_tokens):
        tokens = slice(start, start + block_tokens)
        scores = jnp.matmul(q, prefix.keys[:, :, tokens], preferred_element_type=jnp.float32)
        state = state.update(scores, prefix.values[:, tokens])

    def select(part: Array, empty: Array) -> Array:
        # From [K, B * R, ...] back to [B, K, R, ...].
        part = part.reshape(kv_heads, batch, rows, -1).swapaxes(0, 1)
        return jnp.where(has_prefix[:, None, None, None], part, empty)

    return jax.tree.map(select, state, _OnlineSoftmax.empty(batch, kv_heads, rows, width))
