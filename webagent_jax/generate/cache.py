"""The cache of keys and values on the device: pages of so many tokens, in a few big arrays.

Which pages hold a sequence, a table tells; see `pages`. Attention goes through the tables page by
page (online softmax, Milakov & Gimelshein, arXiv 1805.02867): one column of pages after the other,
as far as the longest sequence reaches. For a sequence that ends before, the rest changes nothing,
not even the last bit: it gets the same in any company.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.policy import ModelConfig
from webagent_jax.policy.kernels.common import MASKED


class LayerPages(NamedTuple):
    """N pages of S tokens, in the layouts that the products of attention read as they are."""

    keys: Array  # [N, K, E, S]
    values: Array  # [N, K, S, E]


Pages = tuple[LayerPages, ...]
"""One for each layer."""


def init(config: ModelConfig, pages: int, page_tokens: int) -> Pages:
    heads, width = config.num_kv_heads, config.head_dim
    return tuple(
        LayerPages(
            jnp.zeros((pages, heads, width, page_tokens), config.dtype),
            jnp.zeros((pages, heads, page_tokens, width), config.dtype),
        )
        for _ in range(config.num_layers)
    )


def token_bytes(config: ModelConfig) -> int:
    """Of keys and values of one token in all layers."""
    return (
        2
        * config.num_layers
        * config.num_kv_heads
        * config.head_dim
        * jnp.dtype(config.dtype).itemsize
    )


def write_tokens(
    layer: LayerPages, key: Array, value: Array, pages: Array, offsets: Array
) -> LayerPages:
    """Stores a token of each sequence: key and value [B, K, E] in `pages` [B] at `offsets` [B]."""
    head = jnp.arange(key.shape[1])[None, :]
    page, offset = pages[:, None], offsets[:, None]
    return LayerPages(
        layer.keys.at[page, head, :, offset].set(key),
        layer.values.at[page, head, offset].set(value),
    )


def write_pages(layer: LayerPages, keys: Array, values: Array, pages: Array) -> LayerPages:
    """Fills whole pages: keys and values [M, S, K, E] into `pages` [M]."""
    keys, values = jnp.moveaxis(keys, 1, -1), jnp.swapaxes(values, 1, 2)
    return LayerPages(layer.keys.at[pages].set(keys), layer.values.at[pages].set(values))


def attend(q: Array, layer: LayerPages, tables: Array, positions: Array, columns: Array) -> Array:
    """Attention of q [B, T, H, E] to what is stored of its sequence up to `positions` [B, T].

    Args:
        tables: int32 [B, P]: page p of sequence b holds its tokens from p * S on.
        columns: how many of the P columns any of the sequences reaches into.

    Returns [B, T, H, E]. Scores and softmax in float32.
    """
    batch, queries, heads, width = q.shape
    kv_heads, size = layer.keys.shape[1], layer.keys.shape[-1]
    group = heads // kv_heads
    # Query heads that read the same key-value head stand one below the other: one product for all.
    q = (q * width**-0.5).reshape(batch, queries, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, group * queries, width)
    last = jnp.tile(positions, (1, group))[:, None, :, None]  # that each row of q sees
    offset = jnp.arange(size)[None, None, None]

    Carry = tuple[Array, Array, Array]

    def column(p: Array, carry: Carry) -> Carry:
        highest, total, out = carry
        pages = tables[:, p]
        scores = jnp.matmul(q, layer.keys[pages], preferred_element_type=jnp.float32)
        scores = jnp.where(p * size + offset <= last, scores, MASKED)
        higher = jnp.maximum(highest, jnp.max(scores, axis=-1, keepdims=True))
        kept = jnp.exp(highest - higher)
        weights = jnp.exp(scores - higher)
        seen = jnp.matmul(
            weights.astype(layer.values.dtype),
            layer.values[pages],
            preferred_element_type=jnp.float32,
        )
        total = total * kept + jnp.sum(weights, axis=-1, keepdims=True)
        return higher, total, out * kept + seen

    rows = (batch, kv_heads, group * queries)
    nothing = (
        jnp.full((*rows, 1), MASKED, jnp.float32),
        jnp.zeros((*rows, 1), jnp.float32),
        jnp.zeros((*rows, width), jnp.float32),
    )
    _, total, out = jax.lax.fori_loop(0, columns, column, nothing)
    out = (out / total).reshape(batch, kv_heads, group, queries, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, queries, heads, width).astype(q.dtype)
