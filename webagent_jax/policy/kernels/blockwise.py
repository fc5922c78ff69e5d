"""Forest attention with memory linear in L, in plain XLA, for any backend and sharding.

The forward pass is an online softmax over blocks of keys (Milakov & Gimelshein 2018, arXiv
1805.02867). The backward pass is that of FlashAttention (Dao et al. 2022, arXiv 2205.14135): only
the output and the logsumexp of the scores are saved. A block of queries skips the
blocks of keys that none of its queries attends to: future keys, and keys whose subtrees have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.policy.kernels.common import MASKED, pad_to_block, visible_blocks

_BLOCK = 512  # tokens per block of queries and per block of keys


class _Blocks(NamedTuple):
    """Operands in n blocks of t tokens, with G query heads per key-value head."""

    q: Array  # [n, B, K, G, t, E]
    k: Array  # [n, B, K, t, E]
    v: Array  # [n, B, K, t, E]
    ends: Array  # int32 [n, B, t]


def attention(
    q: Array, k: Array, v: Array, ends: Array, *, block: int = _BLOCK, row_by_row: bool = False
) -> Array:
    """Compute `attention.dense`; see there for shapes.

    Args:
        q: queries [B, L, H, E].
        k: keys [B, L, K, E].
        v: values [B, L, K, E].
        ends: int32 [B, L].
        block: tokens per block of queries and per block of keys.
        row_by_row: process one row after another, each with its own skipped blocks. Otherwise all
            rows are processed together and skip the blocks that all of them can skip.
    """
    if row_by_row:

        def attend_row(row: tuple[Array, ...]) -> Array:
            return attention(*(x[None] for x in row), block=block)[0]

        return jax.lax.map(attend_row, (q, k, v, ends))
    length = q.shape[1]
    block = min(block, length)
    return _attention(*pad_to_block(q, k, v, ends, block), block)[:, :length]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q: Array, k: Array, v: Array, ends: Array, block: int) -> Array:
    return _forward(q, k, v, ends, block)[0]


def _forward(
    q: Array, k: Array, v: Array, ends: Array, block: int
) -> tuple[Array, tuple[Array, ...]]:
    blocks = _split(q, k, v, ends, block)
    count, batch, kv_heads, group, _, width = blocks.q.shape
    is_visible = _visible_in_any_row(ends, block)

    def attend(i: Array) -> tuple[Array, Array]:
        """Return output [B, K, G, t, E] and logsumexp [B, K, G, t] of a block of queries."""

        def add(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            row_max, row_sum, out = carry
            scores = _scores(blocks, i, j, block)
            new_max = jnp.maximum(row_max, jnp.max(scores, axis=-1))
            # In a row without a visible key so far, new_max is MASKED, and the exponential is 1.
            weights = jnp.where(scores > MASKED / 2, jnp.exp(scores - new_max[..., None]), 0.0)
            rescale = jnp.exp(row_max - new_max)
            row_sum = row_sum * rescale + jnp.sum(weights, axis=-1)
            block_out = _matmul(weights.astype(v.dtype), blocks.v[j][:, :, None])
            return new_max, row_sum, out * rescale[..., None] + block_out

        shape = (batch, kv_heads, group, block)
        start = (
            jnp.full(shape, MASKED, jnp.float32),
            jnp.zeros(shape, jnp.float32),
            jnp.zeros((*shape, width), jnp.float32),
        )
        row_max, row_sum, out = _loop_over_keys(is_visible, i, add, start)
        # Padding queries attend to no key: the minimum makes their output 0 instead of NaN.
        row_sum = jnp.maximum(row_sum, jnp.finfo(jnp.float32).tiny)
        return (out / row_sum[..., None]).astype(v.dtype), row_max + jnp.log(row_sum)

    # [n, B, K, G, t, E] and [n, B, K, G, t], one block of queries after another.
    out, logsumexp = jax.lax.map(attend, jnp.arange(count))
    return _merge_blocks(out), (q, k, v, ends, out, logsumexp)


def _backward(
    block: int, residuals: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array, Array, None]:
    q, k, v, ends, out, logsumexp = residuals
    blocks = _split(q, k, v, ends, block)
    is_visible = _visible_in_any_row(ends, block)
    scale = q.shape[-1] ** -0.5
    d_out = _split_queries(gradient, k.shape[2], block)
    product = d_out.astype(jnp.float32) * out.astype(jnp.float32)
    # D of FlashAttention: sum of weights * d_weights over the keys, computed from the output.
    correction = jnp.sum(product, axis=-1)  # [n, B, K, G, t]
    zeros = partial(jnp.zeros, dtype=jnp.float32)

    def backward_block(carry: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], Array]:
        def add(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            dq, dk, dv = carry
            scores = _scores(blocks, i, j, block)
            # Recomputed softmax. Padding queries get arbitrary weights, but their d_out is 0.
            weights = jnp.exp(scores - logsumexp[i][..., None])
            d_weights = _matmul(d_out[i], jnp.swapaxes(blocks.v[j], -1, -2)[:, :, None])
            d_scores = weights * (d_weights - correction[i][..., None]) * scale
            d_scores, weights = d_scores.astype(q.dtype), weights.astype(q.dtype)
            dq = dq + _matmul(d_scores, blocks.k[j][:, :, None])
            sum_queries = partial(
                jnp.einsum, "bkgts,bkgte->bkse", preferred_element_type=jnp.float32
            )
            # A key-value head receives the gradients of all queries of all heads in its group.
            dk = dk.at[j].add(sum_queries(d_scores, blocks.q[i]))
            return dq, dk, dv.at[j].add(sum_queries(weights, d_out[i]))

        dq, dk, dv = _loop_over_keys(is_visible, i, add, (zeros(blocks.q.shape[1:]), *carry))
        return (dk, dv), dq

    start = (zeros(blocks.k.shape), zeros(blocks.v.shape))
    # dk and dv are sums over all blocks of queries; dq is complete after its own block.
    (dk, dv), dq = jax.lax.scan(backward_block, start, jnp.arange(len(blocks.q)))
    dk, dv = (_merge_blocks(x[:, :, :, None]).astype(k.dtype) for x in (dk, dv))
    return _merge_blocks(dq).astype(q.dtype), dk, dv, None


_attention.defvjp(_forward, _backward)


def _visible_in_any_row(ends: Array, block: int) -> Array:
    """Return bool [n, n]: whether block i of queries attends to block j of keys in any row."""
    return jnp.any(visible_blocks(ends, block, block), axis=0)


def _loop_over_keys(
    is_visible: Array, i: Array, add: Callable[[Array, Any], Any], start: Any
) -> Any:
    """Fold `add(j, carry)` over the blocks of keys that block i of queries attends to."""

    def visit(j: Array, carry: Any) -> Any:
        return jax.lax.cond(is_visible[i, j], partial(add, j), lambda carry: carry, carry)

    # Blocks of keys after block i are never visible.
    return jax.lax.fori_loop(0, i + 1, visit, start)


def _scores(blocks: _Blocks, i: Array, j: Array, block: int) -> Array:
    """Return masked scores of block i of queries and block j of keys, float32 [B, K, G, t, t]."""
    width = blocks.q.shape[-1]
    scores = _matmul(blocks.q[i], jnp.swapaxes(blocks.k[j], -1, -2)[:, :, None]) * width**-0.5
    index = jnp.arange(block)
    query, key = (i * block + index)[None, :, None], (j * block + index)[None, None, :]
    mask = (key <= query) & (query < blocks.ends[j][:, None, :])
    return jnp.where(mask[:, None, None], scores, MASKED)


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _split(q: Array, k: Array, v: Array, ends: Array, block: int) -> _Blocks:
    batch, length, kv_heads, width = k.shape
    shape = (batch, length // block, block, kv_heads, width)
    # [B, n, t, K, E] to [n, B, K, t, E].
    k, v = (x.reshape(shape).transpose(1, 0, 3, 2, 4) for x in (k, v))
    ends = ends.reshape(batch, -1, block).transpose(1, 0, 2)
    return _Blocks(_split_queries(q, kv_heads, block), k, v, ends)


def _split_queries(q: Array, kv_heads: int, block: int) -> Array:
    batch, length, heads, width = q.shape
    q = q.reshape(batch, length // block, block, kv_heads, heads // kv_heads, width)
    # [B, n, t, K, G, E] to [n, B, K, G, t, E].
    return q.transpose(1, 0, 3, 4, 2, 5)


def _merge_blocks(blocks: Array) -> Array:
    """Reshape blocks [n, B, K, G, t, E] to rows [B, n t, K G, E]."""
    n, batch, kv_heads, group, block, width = blocks.shape
    rows = blocks.transpose(1, 0, 4, 2, 3, 5)
    return rows.reshape(batch, n * block, kv_heads * group, width)
