"""The cache of keys and values on the device: pages of so many tokens, in a few big arrays.

Which pages hold a sequence, a table tells; see `pages`. Attention goes through the tables some
columns of pages at a time (online softmax, Milakov & Gimelshein, arXiv 1805.02867), as far as the
longest sequence reaches. For a sequence that ends before, the rest changes nothing, not even the
last bit: it gets the same in any company.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.generate.pages import TRASH
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
    """Fills whole pages: keys and values [M, Q * S, K, E] into `pages` [M, Q]."""
    pages = pages.reshape(-1)
    shape = (len(pages), -1, *keys.shape[2:])
    keys, values = jnp.moveaxis(keys.reshape(shape), 1, -1), values.reshape(shape).swapaxes(1, 2)
    return LayerPages(layer.keys.at[pages].set(keys), layer.values.at[pages].set(values))


def attend(
    q: Array,
    layer: LayerPages,
    tables: Array,
    positions: Array,
    columns: Array,
    *,
    together: int,
) -> Array:
    """Attention of q [B, T, H, E] to what is stored of its sequence up to `positions` [B, T].

    Args:
        tables: int32 [B, P]: page p of sequence b holds its tokens from p * S on.
        columns: how many of the P columns any of the sequences reaches into.
        together: columns that are gathered and multiplied at once, always the same ones: fewer and
            wider products, for what the last of them computes in vain.

    Returns [B, T, H, E]. Scores and softmax in float32.
    """
    batch, queries, heads, width = q.shape
    kv_heads, span = layer.keys.shape[1], together * layer.keys.shape[-1]
    group = heads // kv_heads
    # Query heads that read the same key-value head stand one below the other: one product for all.
    q = (q * width**-0.5).reshape(batch, queries, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, group * queries, width)
    last = jnp.tile(positions, (1, group))[:, None, :, None]  # that each row of q sees
    offset = jnp.arange(span)[None, None, None]
    tables = jnp.pad(tables, ((0, 0), (0, -tables.shape[1] % together)), constant_values=TRASH)

    Carry = tuple[Array, Array, Array]

    def some(index: Array, carry: Carry) -> Carry:
        highest, total, out = carry
        pages = jax.lax.dynamic_slice_in_dim(tables, index * together, together, axis=1)
        keys = layer.keys[pages].transpose(0, 2, 3, 1, 4).reshape(batch, kv_heads, width, span)
        values = layer.values[pages].transpose(0, 2, 1, 3, 4).reshape(batch, kv_heads, span, width)
        scores = jnp.matmul(q, keys, preferred_element_type=jnp.float32)
        scores = jnp.where(index * span + offset <= last, scores, MASKED)
        higher = jnp.maximum(highest, jnp.max(scores, axis=-1, keepdims=True))
        kept = jnp.exp(highest - higher)
        weights = jnp.exp(scores - higher)
        seen = jnp.matmul(weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
        total = total * kept + jnp.sum(weights, axis=-1, keepdims=True)
        return higher, total, out * kept + seen

    rows = (batch, kv_heads, group * queries)
    nothing = (
        jnp.full((*rows, 1), MASKED, jnp.float32),
        jnp.zeros((*rows, 1), jnp.float32),
        jnp.zeros((*rows, width), jnp.float32),
    )
    _, total, out = jax.lax.fori_loop(0, -(-columns // together), some, nothing)
    out = (out / total).reshape(batch, kv_heads, group, queries, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, queries, heads, width).astype(q.dtype)
