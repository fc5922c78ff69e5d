"""What the kernels share: the value of a masked score, whole blocks, and which blocks count."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

MASKED = -1e30  # finite, so that a query that sees nothing makes zeros, never NaN


def whole_blocks(
    q: Array, k: Array, v: Array, ends: Array, multiple: int
) -> tuple[Array, Array, Array, Array]:
    """The operands of `attention.dense`, padded to a multiple of so many tokens."""
    padding = -q.shape[1] % multiple
    if padding:
        q, k, v = (jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))) for x in (q, k, v))
        ends = jnp.pad(ends, ((0, 0), (0, padding)))  # a key that ends at 0 is seen by none
    return q, k, v, ends


def visible(ends: Array, queries: int, keys: int) -> Array:
    """bool [B, blocks of queries, blocks of keys]: some query of the block sees some key.

    Args:
        ends: int32 [B, L].
        queries: tokens of a block of queries; `keys` of one of keys.
    """
    last = jnp.max(ends.reshape(len(ends), -1, keys), axis=-1)
    first_query = jnp.arange(ends.shape[1] // queries) * queries
    first_key = jnp.arange(last.shape[1]) * keys
    past = first_key[None, :] < first_query[:, None] + queries
    return past[None] & (last[:, None, :] > first_query[None, :, None])


def dot(a: Array, b: Array, over: tuple[tuple[int], tuple[int]] = ((1,), (0,))) -> Array:
    """float32 product of matrices `over` an axis of each; exact for float32 operands."""
    exact = lax.Precision.HIGHEST if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(
        a, b, (over, ((), ())), preferred_element_type=jnp.float32, precision=exact
    )
