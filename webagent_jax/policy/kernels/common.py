"""Shared parts of the kernels: masked score, padding to blocks, visible blocks, matmul."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

MASKED = -1e30  # finite, so a query without visible keys gives zeros instead of NaN
MIN_TRITON_TILE = 16  # Triton does not multiply narrower tiles


def is_triton_width(head_dim: int) -> bool:
    """Return whether Triton kernels support the head width: powers of two from 16."""
    return head_dim >= MIN_TRITON_TILE and head_dim & (head_dim - 1) == 0


def pad_to_block(
    q: Array, k: Array, v: Array, ends: Array, block: int
) -> tuple[Array, Array, Array, Array]:
    """Return the operands of `attention.dense`, padded to a multiple of `block` tokens.

    Args:
        q: queries [B, L, H, E].
        k: keys [B, L, K, E].
        v: values [B, L, K, E].
        ends: int32 [B, L].
        block: tokens per block.
    """
    padding = -q.shape[1] % block
    if padding:
        q, k, v = (jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))) for x in (q, k, v))
        # No query attends to a key whose subtree ends at 0.
        ends = jnp.pad(ends, ((0, 0), (0, padding)))
    return q, k, v, ends


def visible_blocks(ends: Array, queries: int, keys: int) -> Array:
    """Return whether any query of a block attends to any key of another block.

    Args:
        ends: int32 [B, L], index after the last descendant of each token.
        queries: tokens per block of queries.
        keys: tokens per block of keys.

    Returns:
        bool [B, L / queries, L / keys].
    """
    # Both conditions are necessary for a visible pair, so no visible block is skipped. They are
    # not sufficient: the mask inside a block decides.
    last = jnp.max(ends.reshape(len(ends), -1, keys), axis=-1)
    first_query = jnp.arange(ends.shape[1] // queries) * queries
    first_key = jnp.arange(last.shape[1]) * keys
    is_causal = first_key[None, :] < first_query[:, None] + queries
    return is_causal[None] & (last[:, None, :] > first_query[None, :, None])


def dot(a: Array, b: Array, axes: tuple[tuple[int], tuple[int]] = ((1,), (0,))) -> Array:
    """Return the float32 product of two matrices; exact for float32 operands.

    Args:
        a: left matrix.
        b: right matrix.
        axes: contracted axes of `a` and `b`.
    """
    # By default, matmul units of TPU and GPU round float32 operands.
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(
        a, b, (axes, ((), ())), preferred_element_type=jnp.float32, precision=precision
    )
