"""Paged KV cache and attention over it.

A page stores the keys and values of a fixed number of tokens; a page table maps each sequence to
its pages (`prefix_cache`). A prefix shared by many sequences is stored once, outside the pages.
Attention processes the shared prefix first, in one matmul for all sequences, so a decode step reads
it once (Hydragen, arXiv 2402.05099). Then it processes a few columns of the page tables at a time
with an online softmax (Milakov & Gimelshein, arXiv 1805.02867). It stops at the longest sequence.
Masked positions contribute exact zeros, so other sequences of the batch do not affect the result.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.inference.prefix_cache import NULL_PAGE
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.kernels.common import MASKED

_MAX_PREFIX_SCORES = 2**18  # per head and step; larger blocks do not fit the CPU cache


class LayerKVPages(NamedTuple):
    """Keys and values of one layer: N pages of S tokens, in the layouts that matmul reads."""

    keys: Array  # [N, K, E, S]
    values: Array  # [N, K, S, E]


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


def init_pages(config: ModelConfig, pages: int, page_tokens: int) -> KVPages:
    """Return zero-filled pages for every layer."""
    heads, width = config.num_kv_heads, config.head_dim
    return tuple(
        LayerKVPages(
            jnp.zeros((pages, heads, width, page_tokens), config.dtype),
            jnp.zeros((pages, heads, page_tokens, width), config.dtype),
        )
        for _ in range(config.num_layers)
    )


def kv_bytes_per_token(config: ModelConfig) -> int:
    """Return the bytes of keys and values of one token over all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * config.itemsize


def write_tokens(
    layer: LayerKVPages, key: Array, value: Array, pages: Array, offsets: Array
) -> LayerKVPages:
    """Store one token per sequence: key and value [B, K, E] in `pages` [B] at `offsets` [B]."""
    # Indices [B, 1] and [1, K] broadcast: the update has the shape [B, K, E] of `key`.
    head = jnp.arange(key.shape[1])[None, :]
    page, offset = pages[:, None], offsets[:, None]
    return LayerKVPages(
        layer.keys.at[page, head, :, offset].set(key),
        layer.values.at[page, head, offset].set(value),
    )


def write_pages(layer: LayerKVPages, keys: Array, values: Array, pages: Array) -> LayerKVPages:
    """Fill whole pages: keys and values [M, Q * S, K, E] into `pages` [M, Q]."""
    pages = pages.reshape(-1)
    shape = (len(pages), -1, *keys.shape[2:])
    # From [M * Q, S, K, E] to keys [M * Q, K, E, S] and values [M * Q, K, S, E].
    keys, values = jnp.moveaxis(keys.reshape(shape), 1, -1), values.reshape(shape).swapaxes(1, 2)
    return LayerKVPages(layer.keys.at[pages].set(keys), layer.values.at[pages].set(values))


def paged_attention(
    q: Array,
    layer: LayerKVPages,
    prefix: LayerSharedPrefix | None,
    metadata: AttentionMetadata,
    *,
    pages_per_block: int,
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

    Returns:
        [B, T, H, E] in the dtype of `q`.
    """
    batch, queries, heads, width = q.shape
    kv_heads, span = layer.keys.shape[1], pages_per_block * layer.keys.shape[-1]
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
        # The pages of a block side by side: [B, C, K, E, S] to [B, K, E, C * S], values alike.
        keys = layer.keys[pages].transpose(0, 2, 3, 1, 4).reshape(batch, kv_heads, width, span)
        values = layer.values[pages].transpose(0, 2, 1, 3, 4).reshape(batch, kv_heads, span, width)
        scores = jnp.matmul(q, keys, preferred_element_type=jnp.float32)
        # Position 0 is visible to every query, so no row is fully masked after the first block.
        return state.update(jnp.where(index * span + offset <= last, scores, MASKED), values)

    state = _OnlineSoftmax.empty(*q.shape)
    if prefix is not None:
        state = _attend_to_prefix(q, prefix, metadata.has_prefix)

    state = jax.lax.fori_loop(
        0, -(-metadata.num_columns // pages_per_block), attend_to_block, state
    )
    out = state.weighted_values / state.sum_exp
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
