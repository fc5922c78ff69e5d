"""Attention over token forests: one mask rule, and grouped-query attention under a mask.

Token i of a row attends to token j if and only if `j <= i < ends[j]`, where `ends[j]` is one past
the last descendant of j in depth-first order. Ordinary causal rows (`ends = L` everywhere), packed
rows and trees of branches are all special cases.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

_MASKED = -1e30  # finite, so that a row of the softmax can never become NaN


def forest_mask(ends: Array) -> Array:
    """bool [B, L, L] from `ends` [B, L]: entry (b, i, j) tells whether token i sees token j."""
    index = jnp.arange(ends.shape[1])
    query, key = index[None, :, None], index[None, None, :]
    return (key <= query) & (query < ends[:, None, :])


def masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Softmax attention where the mask is true; scores and softmax in float32.

    Args:
        q: [B, T, H, E] queries, with H a multiple of K.
        k: [B, S, K, E] keys; query head h reads key-value head h // (H / K).
        v: [B, S, K, E] values.
        mask: bool [B, T, S]; every query must see at least one key.

    Returns:
        [B, T, H, E] in the dtype of `v`.
    """
    batch, length, heads, width = q.shape
    kv_heads = k.shape[2]
    grouped = q.reshape(batch, length, kv_heads, heads // kv_heads, width)
    scores = jnp.einsum("btkge,bske->bkgts", grouped, k, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None], scores * width**-0.5, _MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    out = jnp.einsum("bkgts,bske->btkge", weights, v)
    return out.reshape(batch, length, heads, width)


def dense(q: Array, k: Array, v: Array, ends: Array) -> Array:
    """Forest attention with the whole [L, L] score matrix: the reference implementation."""
    return masked(q, k, v, forest_mask(ends))
