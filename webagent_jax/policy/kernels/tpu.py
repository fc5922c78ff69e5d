"""Forest attention as Pallas kernels for TPU: forward, and two backward kernels.

The algorithm is FlashAttention-2 (Dao 2023, arXiv 2307.08691) with the forest mask. Masked blocks
of keys are neither fetched nor computed: a table in scalar memory maps every grid step to the next
visible block, so the pipeline fetches no other block.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from webagent_jax.policy.kernels.common import MASKED, dot, pad_to_block, visible_blocks
from webagent_jax.policy.kernels.operands import BackwardInputs, OperandSpecs

_LANES = 128  # lanes of a vector register
_BLOCK = 512  # tokens per block of queries and per block of keys
_STATIC = ("block", "interpret")  # static arguments of jit

Ref = Any


class _Residuals(NamedTuple):
    """Arrays saved for the backward pass, with heads before tokens."""

    q: Array  # [B, H, L, E], scaled by E ** -0.5
    k: Array  # [B, K, L, E]
    v: Array  # [B, K, L, E]
    ends: Array  # int32 [B, 1, L]
    out: Array  # [B, H, L, E]
    logsumexp: Array  # float32 [B, H, 1, L], logsumexp of the scores of each query


def attention(
    q: Array, k: Array, v: Array, ends: Array, *, block: int = _BLOCK, interpret: bool = False
) -> Array:
    """Compute `attention.dense` with TPU kernels.

    Args:
        q: queries [B, L, H, E].
        k: keys [B, L, K, E].
        v: values [B, L, K, E].
        ends: int32 [B, L].
        block: tokens per block, a multiple of 128; rows are padded to full blocks.
        interpret: run the kernels in Python on any backend, for tests.
    """
    length = q.shape[1]
    # A short row is one block of full vector registers.
    block = min(block, -(-length // _LANES) * _LANES)
    return _attention(*pad_to_block(q, k, v, ends, block), block, interpret)[:, :length]


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _attention(q: Array, k: Array, v: Array, ends: Array, block: int, interpret: bool) -> Array:
    return _forward(q, k, v, ends, block, interpret)[0]


def _forward(
    q: Array, k: Array, v: Array, ends: Array, block: int, interpret: bool
) -> tuple[Array, _Residuals]:
    scaled = (q * q.shape[-1] ** -0.5).astype(q.dtype)
    # Heads before tokens: the last two axes of a block, tokens and head width, form the tiles.
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (scaled, k, v))
    ends = ends[:, None]
    out, logsumexp = _run_forward(q, k, v, ends, block=block, interpret=interpret)
    return jnp.swapaxes(out, 1, 2), _Residuals(q, k, v, ends, out, logsumexp)


def _backward(
    block: int, interpret: bool, residuals: _Residuals, gradient: Array
) -> tuple[Array, Array, Array, None]:
    d_out = jnp.swapaxes(gradient, 1, 2)
    product = d_out.astype(jnp.float32) * residuals.out.astype(jnp.float32)
    correction = jnp.sum(product, axis=-1)[:, :, None]
    inputs = BackwardInputs(
        residuals.q,
        residuals.k,
        residuals.v,
        residuals.ends,
        d_out,
        residuals.logsumexp,
        correction,
    )
    dq = _run_dq(inputs, block=block, interpret=interpret)
    dk, dv = _run_dkv(inputs, block=block, interpret=interpret)
    scale = residuals.q.shape[-1] ** -0.5
    # The kernels differentiate with respect to the scaled q; dk includes the scale through q.
    dq = (dq * scale).astype(residuals.q.dtype)
    return jnp.swapaxes(dq, 1, 2), jnp.swapaxes(dk, 1, 2), jnp.swapaxes(dv, 1, 2), None


_attention.defvjp(_forward, _backward)


# --- visible blocks and block specs --------------------------------------------------------------


def _next_visible(is_visible: Array) -> Array:
    """Return the index of the next visible block from each block on, along the last axis.

    The result is int32 with the shape of `is_visible`. After the last visible block it repeats that
    block, which is in memory already.
    """
    count = is_visible.shape[-1]
    index = lax.broadcasted_iota(jnp.int32, is_visible.shape, is_visible.ndim - 1)
    # `count` means none; the reversed minimum gives the first visible index from each block on.
    following = jnp.where(is_visible, index, count)
    following = lax.cummin(following, axis=is_visible.ndim - 1, reverse=True)
    last = jnp.max(jnp.where(is_visible, index, 0), axis=-1, keepdims=True)
    return jnp.where(following < count, following, last)


def _specs_by_queries(block: int, width: int, group: int) -> OperandSpecs:
    """Return specs for a grid of (batch, head, block of queries, block of keys)."""

    def key_index(b: Any, h: Any, i: Any, j: Any, _: Ref, next_block: Ref) -> tuple[Any, ...]:
        return b, lax.div(h, group), next_block[b, i, j], 0

    def end_index(b: Any, h: Any, i: Any, j: Any, _: Ref, next_block: Ref) -> tuple[Any, ...]:
        return b, 0, next_block[b, i, j]

    return OperandSpecs(
        query=pl.BlockSpec((1, 1, block, width), lambda b, h, i, j, *_: (b, h, i, 0)),
        key=pl.BlockSpec((1, 1, block, width), key_index),
        end=pl.BlockSpec((1, 1, block), end_index),
        row=pl.BlockSpec((1, 1, 1, block), lambda b, h, i, j, *_: (b, h, 0, i)),
    )


def _specs_by_keys(block: int, width: int, group: int) -> OperandSpecs:
    """Return specs for a grid of (batch, kv head, block of keys, head in group, query block)."""

    def query_index(
        b: Any, h: Any, j: Any, g: Any, i: Any, _: Ref, next_block: Ref
    ) -> tuple[Any, ...]:
        return b, h * group + g, next_block[b, j, i], 0

    def row_index(
        b: Any, h: Any, j: Any, g: Any, i: Any, _: Ref, next_block: Ref
    ) -> tuple[Any, ...]:
        return b, h * group + g, 0, next_block[b, j, i]

    return OperandSpecs(
        query=pl.BlockSpec((1, 1, block, width), query_index),
        key=pl.BlockSpec((1, 1, block, width), lambda b, h, j, g, i, *_: (b, h, j, 0)),
        end=pl.BlockSpec((1, 1, block), lambda b, h, j, g, i, *_: (b, 0, j)),
        row=pl.BlockSpec((1, 1, 1, block), row_index),
    )


# --- forward -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=_STATIC)
def _run_forward(
    q: Array, k: Array, v: Array, ends: Array, *, block: int, interpret: bool
) -> tuple[Array, Array]:
    batch, heads, length, width = q.shape
    group, count = heads // k.shape[1], length // block
    is_visible = visible_blocks(ends[:, 0], block, block)
    specs = _specs_by_queries(block, width, group)
    return pl.pallas_call(
        partial(_forward_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, heads, count, count),
            in_specs=[specs.query, specs.key, specs.key, specs.end],
            out_specs=[specs.query, specs.row],
            scratch_shapes=[
                # Maximum and sum of a row are stored once per lane, since a register has 128 lanes.
                pltpu.VMEM((block, _LANES), jnp.float32),
                pltpu.VMEM((block, _LANES), jnp.float32),
                pltpu.VMEM((block, width), jnp.float32),
            ],
        ),
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct((batch, heads, 1, length), jnp.float32),
        ],
        # The last axis runs in order: the scratch memory accumulates over the blocks of keys.
        compiler_params=_compiler_params(3),
        interpret=interpret,
    )(is_visible.astype(jnp.int32), _next_visible(is_visible), q, k, v, ends)


def _forward_kernel(
    is_visible: Ref,
    _: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    out: Ref,
    logsumexp: Ref,
    row_max: Ref,
    row_sum: Ref,
    out_sum: Ref,
    *,
    block: int,
) -> None:
    # In a visible step the table of next blocks contains j itself, so k, v and ends are block j.
    b, i, j = pl.program_id(0), pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _start() -> None:
        row_max[...] = jnp.full_like(row_max, MASKED)
        row_sum[...] = jnp.zeros_like(row_sum)
        out_sum[...] = jnp.zeros_like(out_sum)

    @pl.when(is_visible[b, i, j] != 0)
    def _add() -> None:
        mask = _mask(ends[0], i, j, block)
        scores = jnp.where(mask, dot(q[0, 0], k[0, 0], ((1,), (1,))), MASKED)
        old_max = row_max[:, :1]
        new_max = jnp.maximum(old_max, jnp.max(scores, axis=1, keepdims=True))
        # In a row without a visible key so far, new_max is MASKED, and the exponential is 1.
        weights = jnp.where(mask, jnp.exp(scores - new_max), 0.0)
        rescale = jnp.exp(old_max - new_max)
        new_sum = rescale * row_sum[:, :1] + jnp.sum(weights, axis=1, keepdims=True)
        row_max[...] = jnp.broadcast_to(new_max, row_max.shape)
        row_sum[...] = jnp.broadcast_to(new_sum, row_sum.shape)
        out_sum[...] = out_sum[...] * rescale + dot(weights.astype(v.dtype), v[0, 0])

    @pl.when(j == pl.num_programs(3) - 1)
    def _finish() -> None:
        # Padding queries attend to no key: the minimum makes their output 0 instead of NaN.
        final_sum = jnp.maximum(row_sum[...], jnp.finfo(jnp.float32).tiny)
        out[0, 0] = (out_sum[...] / final_sum[:, :1]).astype(out.dtype)
        # All lanes are equal: [t, lanes] becomes [1, t].
        logsumexp[0, 0] = (row_max[...] + jnp.log(final_sum)).T[:1]


# --- backward ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=_STATIC)
def _run_dq(inputs: BackwardInputs, *, block: int, interpret: bool) -> Array:
    batch, heads, length, width = inputs.q.shape
    group, count = heads // inputs.k.shape[1], length // block
    is_visible = visible_blocks(inputs.ends[:, 0], block, block)
    specs = _specs_by_queries(block, width, group)
    return pl.pallas_call(
        partial(_dq_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, heads, count, count),
            in_specs=specs.backward_inputs(),
            out_specs=specs.query,
            scratch_shapes=[pltpu.VMEM((block, width), jnp.float32)],
        ),
        out_shape=jax.ShapeDtypeStruct(inputs.q.shape, jnp.float32),
        compiler_params=_compiler_params(3),
        interpret=interpret,
    )(is_visible.astype(jnp.int32), _next_visible(is_visible), *inputs)


def _dq_kernel(
    is_visible: Ref,
    _: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    logsumexp: Ref,
    correction: Ref,
    dq: Ref,
    dq_sum: Ref,
    *,
    block: int,
) -> None:
    b, i, j = pl.program_id(0), pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _start() -> None:
        dq_sum[...] = jnp.zeros_like(dq_sum)

    @pl.when(is_visible[b, i, j] != 0)
    def _add() -> None:
        mask = _mask(ends[0], i, j, block)
        scores = dot(q[0, 0], k[0, 0], ((1,), (1,)))
        weights = jnp.where(mask, jnp.exp(scores - _to_column(logsumexp[0, 0])), 0.0)
        d_weights = dot(d_out[0, 0], v[0, 0], ((1,), (1,)))
        # Softmax gradient: dS = P * (dP - D), where D is the correction.
        d_scores = weights * (d_weights - _to_column(correction[0, 0]))
        dq_sum[...] += dot(d_scores.astype(k.dtype), k[0, 0])

    @pl.when(j == pl.num_programs(3) - 1)
    def _finish() -> None:
        dq[0, 0] = dq_sum[...]


@partial(jax.jit, static_argnames=_STATIC)
def _run_dkv(inputs: BackwardInputs, *, block: int, interpret: bool) -> tuple[Array, Array]:
    """Run a grid that loops, per block of keys, over the query blocks of all heads of its group."""
    batch, heads, length, width = inputs.q.shape
    kv_heads = inputs.k.shape[1]
    group, count = heads // kv_heads, length // block
    is_visible = visible_blocks(inputs.ends[:, 0], block, block)
    is_visible = jnp.swapaxes(is_visible, 1, 2)  # [B, blocks of keys, blocks of queries]
    specs = _specs_by_keys(block, width, group)
    return pl.pallas_call(
        partial(_dkv_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, kv_heads, count, group, count),
            in_specs=specs.backward_inputs(),
            out_specs=[specs.key, specs.key],
            scratch_shapes=[pltpu.VMEM((block, width), jnp.float32)] * 2,
        ),
        out_shape=[
            jax.ShapeDtypeStruct(inputs.k.shape, inputs.k.dtype),
            jax.ShapeDtypeStruct(inputs.v.shape, inputs.v.dtype),
        ],
        # The last two axes run in order: dk and dv are sums over heads of the group and queries.
        compiler_params=_compiler_params(3, 2),
        interpret=interpret,
    )(is_visible.astype(jnp.int32), _next_visible(is_visible), *inputs)


def _dkv_kernel(
    is_visible: Ref,
    _: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    logsumexp: Ref,
    correction: Ref,
    dk: Ref,
    dv: Ref,
    dk_sum: Ref,
    dv_sum: Ref,
    *,
    block: int,
) -> None:
    """Process transposed scores [keys, queries], in which the values of a query form a row."""
    b, j, g, i = pl.program_id(0), pl.program_id(2), pl.program_id(3), pl.program_id(4)

    @pl.when((g == 0) & (i == 0))
    def _start() -> None:
        dk_sum[...] = jnp.zeros_like(dk_sum)
        dv_sum[...] = jnp.zeros_like(dv_sum)

    @pl.when(is_visible[b, j, i] != 0)
    def _add() -> None:
        key = j * block + lax.broadcasted_iota(jnp.int32, (block, block), 0)
        query = i * block + lax.broadcasted_iota(jnp.int32, (block, block), 1)
        mask = (key <= query) & (query < _to_column(ends[0]))
        scores = dot(k[0, 0], q[0, 0], ((1,), (1,)))
        weights = jnp.where(mask, jnp.exp(scores - logsumexp[0, 0]), 0.0)
        d_weights = dot(v[0, 0], d_out[0, 0], ((1,), (1,)))
        d_scores = weights * (d_weights - correction[0, 0])
        dv_sum[...] += dot(weights.astype(d_out.dtype), d_out[0, 0])
        dk_sum[...] += dot(d_scores.astype(q.dtype), q[0, 0])

    @pl.when((g == pl.num_programs(3) - 1) & (i == pl.num_programs(4) - 1))
    def _finish() -> None:
        dk[0, 0] = dk_sum[...].astype(dk.dtype)
        dv[0, 0] = dv_sum[...].astype(dv.dtype)


# --- inside the kernels --------------------------------------------------------------------------


def _mask(ends: Array, i: Array, j: Array, block: int) -> Array:
    """Return the mask [t, t] of block i of queries and block j of keys; ends int32 [1, t]."""
    query = i * block + lax.broadcasted_iota(jnp.int32, (block, block), 0)
    key = j * block + lax.broadcasted_iota(jnp.int32, (block, block), 1)
    return (key <= query) & (query < ends)


def _to_column(row: Array) -> Array:
    """Transpose [1, t] to [t, 1]; the broadcast is needed because transposition uses full tiles."""
    return jnp.broadcast_to(row, (_LANES, row.shape[1])).T[:, :1]


def _compiler_params(num_parallel: int, num_sequential: int = 1) -> pltpu.CompilerParams:
    """Return compiler options for a grid of parallel axes followed by sequential ones."""
    semantics: list[Literal["parallel", "arbitrary"]] = ["parallel"] * num_parallel
    semantics += ["arbitrary"] * num_sequential
    return pltpu.CompilerParams(dimension_semantics=semantics)
