"""Forest attention in memory linear in L, in plain XLA: runs on any backend, shards like any op.

Online softmax over blocks of keys (Milakov & Gimelshein 2018, arXiv 1805.02867), and the backward
pass of FlashAttention (Dao et al. 2022, arXiv 2205.14135): only the output and the logarithm of
the softmax's denominator are kept. A block of keys that no query of a block can see is skipped:
those in the future, and those whose subtrees have all ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.policy.kernels.common import MASKED, visible, whole_blocks

_BLOCK = 512  # tokens of a block of queries, and of one of keys


class _Blocks(NamedTuple):
    """The operands cut into n blocks of t tokens; G query heads for each key-value head."""

    q: Array  # [n, B, K, G, t, E]
    k: Array  # [n, B, K, t, E]
    v: Array  # [n, B, K, t, E]
    ends: Array  # int32 [n, B, t]


def attention(
    q: Array, k: Array, v: Array, ends: Array, *, block: int = _BLOCK, row_by_row: bool = False
) -> Array:
    """As `attention.dense`: q [B, L, H, E], k and v [B, L, K, E], ends [B, L] -> [B, L, H, E].

    Args:
        block: tokens of a block of queries, and of one of keys.
        row_by_row: one after the other, each skipping what it alone can skip; else all rows at
            once, which skip what all of them can.
    """
    if row_by_row:

        def one(row: tuple[Array, ...]) -> Array:
            return attention(*(x[None] for x in row), block=block)[0]

        return jax.lax.map(one, (q, k, v, ends))
    length = q.shape[1]
    block = min(block, length)
    return _attention(*whole_blocks(q, k, v, ends, block), block)[:, :length]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q: Array, k: Array, v: Array, ends: Array, block: int) -> Array:
    return _forward(q, k, v, ends, block)[0]


def _forward(
    q: Array, k: Array, v: Array, ends: Array, block: int
) -> tuple[Array, tuple[Array, ...]]:
    blocks = _cut(q, k, v, ends, block)
    count, batch, kv_heads, group, _, width = blocks.q.shape
    counts = _counts(ends, block)

    def attend(i: Array) -> tuple[Array, Array]:
        """Output [B, K, G, t, E] and log-denominator [B, K, G, t] of one block of queries."""

        def add(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            highest, total, out = carry
            scores = _scores(blocks, i, j, block)
            higher = jnp.maximum(highest, jnp.max(scores, axis=-1))
            weights = jnp.where(scores > MASKED / 2, jnp.exp(scores - higher[..., None]), 0.0)
            shrink = jnp.exp(highest - higher)
            total = total * shrink + jnp.sum(weights, axis=-1)
            added = _matmul(weights.astype(v.dtype), blocks.v[j][:, :, None])
            return higher, total, out * shrink[..., None] + added

        shape = (batch, kv_heads, group, block)
        start = (
            jnp.full(shape, MASKED, jnp.float32),
            jnp.zeros(shape, jnp.float32),
            jnp.zeros((*shape, width), jnp.float32),
        )
        highest, total, out = _over_keys(counts, i, add, start)
        seen = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)  # padding sees nothing: 0, not NaN
        return (out / seen[..., None]).astype(v.dtype), highest + jnp.log(seen)

    out, denominator = jax.lax.map(attend, jnp.arange(count))
    return _joined(out), (q, k, v, ends, out, denominator)


def _backward(
    block: int, saved: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array, Array, None]:
    q, k, v, ends, out, denominator = saved
    blocks = _cut(q, k, v, ends, block)
    counts = _counts(ends, block)
    scale = q.shape[-1] ** -0.5
    d_out = _cut_queries(gradient, k.shape[2], block)
    product = d_out.astype(jnp.float32) * out.astype(jnp.float32)
    correction = jnp.sum(product, axis=-1)  # [n, B, K, G, t]
    zeros = partial(jnp.zeros, dtype=jnp.float32)

    def back(carry: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], Array]:
        def add(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            dq, dk, dv = carry
            scores = _scores(blocks, i, j, block)
            weights = jnp.exp(scores - denominator[i][..., None])
            d_weights = _matmul(d_out[i], jnp.swapaxes(blocks.v[j], -1, -2)[:, :, None])
            d_scores = weights * (d_weights - correction[i][..., None]) * scale
            d_scores, low = d_scores.astype(q.dtype), weights.astype(q.dtype)
            dq = dq + _matmul(d_scores, blocks.k[j][:, :, None])
            into = partial(jnp.einsum, "bkgts,bkgte->bkse", preferred_element_type=jnp.float32)
            return dq, dk.at[j].add(into(d_scores, blocks.q[i])), dv.at[j].add(into(low, d_out[i]))

        dq, dk, dv = _over_keys(counts, i, add, (zeros(blocks.q.shape[1:]), *carry))
        return (dk, dv), dq

    start = (zeros(blocks.k.shape), zeros(blocks.v.shape))
    (dk, dv), dq = jax.lax.scan(back, start, jnp.arange(len(blocks.q)))
    dk, dv = (_joined(x[:, :, :, None]).astype(k.dtype) for x in (dk, dv))
    return _joined(dq).astype(q.dtype), dk, dv, None


_attention.defvjp(_forward, _backward)


def _counts(ends: Array, block: int) -> Array:
    """bool [n, n]: some query of block i sees some key of block j, in any of the rows."""
    return jnp.any(visible(ends, block, block), axis=0)


def _over_keys(counts: Array, i: Array, add: Callable[[Array, Any], Any], start: Any) -> Any:
    """`add(j, carry)` over the blocks of keys that count for block i of queries."""

    def visit(j: Array, carry: Any) -> Any:
        return jax.lax.cond(counts[i, j], partial(add, j), lambda carry: carry, carry)

    return jax.lax.fori_loop(0, i + 1, visit, start)


def _scores(blocks: _Blocks, i: Array, j: Array, block: int) -> Array:
    """float32 [B, K, G, t, t] of the queries of block i and the keys of block j, masked."""
    width = blocks.q.shape[-1]
    scores = _matmul(blocks.q[i], jnp.swapaxes(blocks.k[j], -1, -2)[:, :, None]) * width**-0.5
    index = jnp.arange(block)
    query, key = (i * block + index)[None, :, None], (j * block + index)[None, None, :]
    mask = (key <= query) & (query < blocks.ends[j][:, None, :])
    return jnp.where(mask[:, None, None], scores, MASKED)


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _cut(q: Array, k: Array, v: Array, ends: Array, block: int) -> _Blocks:
    batch, length, kv_heads, width = k.shape
    shape = (batch, length // block, block, kv_heads, width)
    k, v = (x.reshape(shape).transpose(1, 0, 3, 2, 4) for x in (k, v))
    ends = ends.reshape(batch, -1, block).transpose(1, 0, 2)
    return _Blocks(_cut_queries(q, kv_heads, block), k, v, ends)


def _cut_queries(q: Array, kv_heads: int, block: int) -> Array:
    batch, length, heads, width = q.shape
    q = q.reshape(batch, length // block, block, kv_heads, heads // kv_heads, width)
    return q.transpose(1, 0, 3, 4, 2, 5)


def _joined(blocks: Array) -> Array:
    """[n, B, K, G, t, E] -> [B, n t, K G, E]."""
    n, batch, kv_heads, group, block, width = blocks.shape
    joined = blocks.transpose(1, 0, 4, 2, 3, 5)
    return joined.reshape(batch, n * block, kv_heads * group, width)
