"""The cache of keys and values on the device: pages of so many tokens, in a few big arrays, and
the preamble, with which many sequences begin, in arrays of its own.

Which pages hold a sequence, a table tells; see `pages`. Attention meets the preamble first, all
sequences in one product, so that a decode step reads it once (as Hydragen does, arXiv 2402.05099).
Then it goes through the tables some columns of pages at a time (online softmax, Milakov &
Gimelshein, arXiv 1805.02867), as far as the longest sequence reaches. For a sequence that ends
before, the rest changes nothing, not even the last bit: it gets the same in any company.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.inference.prefix_cache import TRASH
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.kernels.common import MASKED

_SCORES = 2**18  # of a head and a preamble at once: more of them leave the processor's cache


class LayerPages(NamedTuple):
    """N pages of S tokens, in the layouts that the products of attention read as they are."""

    keys: Array  # [N, K, E, S]
    values: Array  # [N, K, S, E]


Pages = tuple[LayerPages, ...]
"""One for each layer."""


class LayerPreamble(NamedTuple):
    """What stands at the beginning of many sequences, A tokens."""

    keys: Array  # [K, E, A]
    values: Array  # [K, A, E]


Preamble = tuple[LayerPreamble, ...]
"""One for each layer; none where there is no preamble."""


class Reach(NamedTuple):
    """What the T queries of each of B sequences see."""

    tables: Array  # int32 [B, P]: page p holds the sequence's own tokens from p * S on
    positions: Array  # int32 [B, T] of the queries among those: they see what is up to there
    columns: Array  # int32, how many of the P columns any of the sequences reaches into
    after: Array  # bool [B] the preamble stands before its own tokens


class _Seen(NamedTuple):
    """An online softmax under way, for R rows of queries."""

    highest: Array  # float32 [..., R, 1] score so far
    total: Array  # float32 [..., R, 1] of the weights exp(score - highest)
    out: Array  # float32 [..., R, E] values by their weights

    @classmethod
    def nothing(cls, *shape: int) -> _Seen:
        """`shape` is that of `out`."""
        one = (*shape[:-1], 1)
        return cls(
            jnp.full(one, MASKED, jnp.float32),
            jnp.zeros(one, jnp.float32),
            jnp.zeros(shape, jnp.float32),
        )

    def and_then(self, scores: Array, values: Array) -> _Seen:
        """Sees `values` [..., S, E] too, by float32 `scores` [..., R, S]."""
        highest = jnp.maximum(self.highest, jnp.max(scores, axis=-1, keepdims=True))
        kept = jnp.exp(self.highest - highest)
        weights = jnp.exp(scores - highest)
        out = jnp.matmul(weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
        total = self.total * kept + jnp.sum(weights, axis=-1, keepdims=True)
        return _Seen(highest, total, self.out * kept + out)


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
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * config.itemsize


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
    q: Array, layer: LayerPages, preamble: LayerPreamble | None, reach: Reach, *, together: int
) -> Array:
    """Attention of q [B, T, H, E] to what is stored of its sequence.

    Args:
        preamble: None where no sequence has one.
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
    last = jnp.tile(reach.positions, (1, group))[:, None, :, None]  # that each row of q sees
    offset = jnp.arange(span)[None, None, None]
    padding = (0, -reach.tables.shape[1] % together)
    tables = jnp.pad(reach.tables, ((0, 0), padding), constant_values=TRASH)

    def some(index: Array, seen: _Seen) -> _Seen:
        pages = jax.lax.dynamic_slice_in_dim(tables, index * together, together, axis=1)
        keys = layer.keys[pages].transpose(0, 2, 3, 1, 4).reshape(batch, kv_heads, width, span)
        values = layer.values[pages].transpose(0, 2, 1, 3, 4).reshape(batch, kv_heads, span, width)
        scores = jnp.matmul(q, keys, preferred_element_type=jnp.float32)
        return seen.and_then(jnp.where(index * span + offset <= last, scores, MASKED), values)

    seen = _Seen.nothing(*q.shape)
    if preamble is not None:
        seen = _seen_of_preamble(q, preamble, reach.after)
    seen = jax.lax.fori_loop(0, -(-reach.columns // together), some, seen)
    out = seen.out / seen.total
    out = out.reshape(batch, kv_heads, group, queries, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, queries, heads, width).astype(q.dtype)


def _seen_of_preamble(q: Array, preamble: LayerPreamble, after: Array) -> _Seen:
    """What the sequences q [B, K, R, E] see of it: nothing, to the bit, those that are not
    `after` it [B]."""
    batch, kv_heads, rows, width = q.shape
    q = q.swapaxes(0, 1).reshape(kv_heads, batch * rows, width)
    seen = _Seen.nothing(*q.shape)
    together = max(1, _SCORES // (batch * rows))
    for start in range(0, preamble.keys.shape[-1], together):
        tokens = slice(start, start + together)
        scores = jnp.matmul(q, preamble.keys[:, :, tokens], preferred_element_type=jnp.float32)
        seen = seen.and_then(scores, preamble.values[:, tokens])

    def kept(part: Array, nothing: Array) -> Array:
        part = part.reshape(kv_heads, batch, rows, -1).swapaxes(0, 1)
        return jnp.where(after[:, None, None, None], part, nothing)

    return jax.tree.map(kept, seen, _Seen.nothing(batch, kv_heads, rows, width))
