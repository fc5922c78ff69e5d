"""Attention over the paged KV cache.

Attention processes the shared prefix first, in one matmul for all sequences, so a decode step reads
it once (Hydragen, arXiv 2402.05099). Then it processes the pages of each sequence with an online
softmax (Milakov & Gimelshein, arXiv 1805.02867): a few columns of the page tables at a time, up to
the longest sequence, or in a GPU kernel (`gpu_paged_attention`). Masked positions contribute exact
zeros, so other sequences of the batch do not affect the result.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from webagent_jax.inference import gpu_paged_attention
from webagent_jax.inference.kv_cache import (
    LayerKVPages,
    LayerSharedPrefix,
    RowPages,
    TransposedPages,
    page_tokens,
)
from webagent_jax.inference.prefix_cache import NULL_PAGE
from webagent_jax.policy.kernels.common import MASKED

_MAX_PREFIX_SCORES = 2**18  # per head and step; larger blocks do not fit the CPU cache

Implementation = Literal["xla", "gpu"]
"""Plain XLA, or a kernel for few queries per sequence over `RowPages` on GPUs."""


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

    def merge(self, other: _OnlineSoftmax) -> _OnlineSoftmax:
        """Return the state after the keys of both."""
        max_score = jnp.maximum(self.max_score, other.max_score)
        rescale, other_rescale = (jnp.exp(x.max_score - max_score) for x in (self, other))
        return _OnlineSoftmax(
            max_score,
            self.sum_exp * rescale + other.sum_exp * other_rescale,
            self.weighted_values * rescale + other.weighted_values * other_rescale,
        )

    @property
    def result(self) -> Array:
        """Output of the attention, float32 [..., R, E]."""
        return self.weighted_values / self.sum_exp


def paged_attention(
    q: Array,
    layer: LayerKVPages,
    prefix: LayerSharedPrefix | None,
    metadata: AttentionMetadata,
    *,
    pages_per_block: int,
    implementation: Implementation = "xla",
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
        implementation: attention to the pages.
        mesh: mesh of the engine; None for a single device.

    Returns:
        [B, T, H, E] in the dtype of `q`.
    """
    attend = partial(
        _paged_attention, pages_per_block=pages_per_block, implementation=implementation
    )
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
    implementation: Implementation,
) -> Array:
    batch, queries, heads, width = q.shape
    kv_heads = layer[-1].shape[1]
    group = heads // kv_heads
    # Query heads of one key-value head are stacked along the rows: one matmul serves all of them.
    q = (q * width**-0.5).reshape(batch, queries, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, group * queries, width)
    state = _OnlineSoftmax.empty(*q.shape)
    if prefix is not None:
        state = _attend_to_prefix(q, prefix, metadata.has_prefix)
    if implementation == "gpu":
        assert isinstance(layer, RowPages)
        tables = metadata.page_tables
        # Inactive slots may have any position: they attend to at least one token and stay finite.
        lengths = jnp.clip(
            _last_positions(metadata, group) + 1, 1, tables.shape[1] * page_tokens(layer)
        )
        pages = gpu_paged_attention.attend(q, layer.keys, layer.values, tables, lengths)
        state = state.merge(_OnlineSoftmax(*pages))
    else:
        state = _attend_to_pages(q, layer, metadata, state, pages_per_block)
    out = state.result.reshape(batch, kv_heads, group, queries, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, queries, heads, width).astype(q.dtype)


def _attend_to_pages(
    q: Array,
    layer: LayerKVPages,
    metadata: AttentionMetadata,
    state: _OnlineSoftmax,
    pages_per_block: int,
) -> _OnlineSoftmax:
    """Return the softmax state after the pages of each sequence; q is scaled, [B, K, R, E]."""
    width, row_width = q.shape[-1], layer[-1].shape[-1]
    span = pages_per_block * page_tokens(layer)
    group = q.shape[2] // metadata.query_positions.shape[1]
    last = _last_positions(metadata, group)[:, None, :, None]
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

    # Rows of `FusedPages` contain the key before the value: zeros in place of the other part.
    before, after = [(0, 0)] * 3 + [(row_width - width, 0)], [(0, 0)] * 3 + [(0, row_width - width)]
    q = jnp.pad(q, after)
    state = state._replace(weighted_values=jnp.pad(state.weighted_values, before))
    num_blocks = -(-metadata.num_columns // pages_per_block)
    state = jax.lax.fori_loop(0, num_blocks, attend_to_block, state)
    return state._replace(weighted_values=state.weighted_values[..., row_width - width :])


def _last_positions(metadata: AttentionMetadata, group: int) -> Array:
    """Return the last position that each row of q attends to, int32 [B, R]."""
    return jnp.tile(metadata.query_positions, (1, group))


def _attend_to_prefix(q: Array, prefix: LayerSharedPrefix, has_prefix: Array) -> _OnlineSoftmax:
    """Return the softmax state after the shared prefix; empty for sequences without it.

    Args:
        q: scaled queries [B, K, R, E].
        prefix: keys and values of the shared prefix.
        has_prefix: bool [B]; sequences without the prefix get exactly the empty state.
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
