"""Attention of decode steps as a Pallas kernel for GPU (Triton).

The pages of a sequence are divided among several programs, as in Flash-Decoding (Dao et al. 2023).
Each reads its pages where they are, so a step copies none, and no loop needs the host.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from webagent_jax.policy.kernels.common import MASKED, MIN_TRITON_TILE, dot

_SPLITS = 16  # programs per sequence and head: 16 slots with 2 heads occupy all cores of a GPU
_WARPS, _STAGES = 4, 2

Ref = Any


@partial(jax.jit, static_argnames="interpret")
def attend(
    q: Array, keys: Array, values: Array, tables: Array, lengths: Array, *, interpret: bool = False
) -> tuple[Array, Array, Array]:
    """Attend to the first tokens of each sequence.

    Args:
        q: scaled queries [B, K, R, E].
        keys: pages of S keys [N, K, S, E].
        values: pages of S values [N, K, S, E].
        tables: int32 [B, P], pages of each sequence.
        lengths: int32 [B, R], number of visible tokens of each row, 1 or more.
        interpret: run the kernel in Python on any backend, for tests.

    Returns:
        Maximum of the scores [B, K, R, 1], sum of the weights exp(score - maximum) [B, K, R, 1],
        and sum of the weighted values [B, K, R, E]; float32.
    """
    batch, kv_heads, rows, width = q.shape
    num_pages, _, page_tokens, _ = keys.shape
    padded_rows = max(MIN_TRITON_TILE, pl.next_power_of_2(rows))
    padding = (0, padded_rows - rows)
    q = jnp.pad(q, ((0, 0), (0, 0), padding, (0, 0)))
    lengths = jnp.pad(lengths, ((0, 0), padding), constant_values=1)
    pages = pl.BlockSpec((num_pages, None, page_tokens, width), lambda s, h, b: (0, h, 0, 0))

    def per_split(*shape: int) -> pl.BlockSpec:
        zeros = (0,) * len(shape)
        return pl.BlockSpec((None, None, None, *shape), lambda s, h, b: (s, b, h, *zeros))

    shape = (_SPLITS, batch, kv_heads, padded_rows)
    max_score, sum_exp, weighted_values = pl.pallas_call(
        _kernel,
        grid=(_SPLITS, kv_heads, batch),
        in_specs=[
            pl.BlockSpec((None, None, padded_rows, width), lambda s, h, b: (b, h, 0, 0)),
            pages,
            pages,
            pl.BlockSpec((None, tables.shape[1]), lambda s, h, b: (b, 0)),
            pl.BlockSpec((None, padded_rows), lambda s, h, b: (b, 0)),
        ],
        out_specs=[per_split(padded_rows), per_split(padded_rows), per_split(padded_rows, width)],
        out_shape=[
            jax.ShapeDtypeStruct(shape, jnp.float32),
            jax.ShapeDtypeStruct(shape, jnp.float32),
            jax.ShapeDtypeStruct((*shape, width), jnp.float32),
        ],
        compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
    )(q, keys, values, tables, lengths)
    # Merge the splits; those without pages have a sum of 0.
    max_score, sum_exp, weighted_values = (
        x[:, :, :, :rows] for x in (max_score[..., None], sum_exp[..., None], weighted_values)
    )
    total_max = jnp.max(max_score, axis=0, keepdims=True)
    rescale = jnp.exp(max_score - total_max)
    return (
        total_max[0],
        jnp.sum(sum_exp * rescale, axis=0),
        jnp.sum(weighted_values * rescale, axis=0),
    )


def _kernel(
    q_ref: Ref,  # [R, E]
    keys_ref: Ref,  # [N, S, E]
    values_ref: Ref,  # [N, S, E]
    table_ref: Ref,  # [P]
    lengths_ref: Ref,  # [R]
    max_ref: Ref,  # [R]
    sum_ref: Ref,  # [R]
    weighted_values_ref: Ref,  # [R, E]
) -> None:
    q = q_ref[...]
    page_tokens = keys_ref.shape[1]
    lengths = lengths_ref[...]
    # Each program reads the same number of consecutive pages; the last ones may read fewer.
    num_pages = pl.cdiv(jnp.max(lengths), page_tokens)
    pages_per_split = pl.cdiv(num_pages, _SPLITS)
    start = pl.program_id(0) * pages_per_split
    end = jnp.minimum(start + pages_per_split, num_pages)

    def attend_to_page(index: Array, state: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        max_score, sum_exp, weighted_values = state
        page = table_ref[index]
        keys, values = keys_ref[page], values_ref[page]
        scores = dot(q, keys, ((1,), (1,)))
        position = index * page_tokens + jnp.arange(page_tokens)
        scores = jnp.where(position[None] < lengths[:, None], scores, MASKED)
        new_max = jnp.maximum(max_score, jnp.max(scores, axis=1))
        rescale = jnp.exp(max_score - new_max)
        weights = jnp.exp(scores - new_max[:, None])
        return (
            new_max,
            sum_exp * rescale + jnp.sum(weights, axis=1),
            weighted_values * rescale[:, None] + dot(weights.astype(values.dtype), values),
        )

    rows = len(q)
    state = lax.fori_loop(
        start,
        end,
        attend_to_page,
        (
            jnp.full(rows, MASKED, jnp.float32),
            jnp.zeros(rows, jnp.float32),
            jnp.zeros(q.shape, jnp.float32),
        ),
    )
    max_ref[...], sum_ref[...], weighted_values_ref[...] = state
