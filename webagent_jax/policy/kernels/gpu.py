"""Forest attention as Pallas kernels for GPU (Triton): forward, and two backward kernels.

The algorithm is FlashAttention-2 (Dao 2023, arXiv 2307.08691) with the forest mask. Every program
loops over a list of its visible blocks, so masked blocks cost nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from webagent_jax.policy.kernels.common import (
    MASKED,
    MIN_TRITON_TILE,
    dot,
    is_triton_width,
    pad_to_block,
    visible_blocks,
)
from webagent_jax.policy.kernels.operands import BackwardInputs, OperandSpecs

Ref = Any


class _Tiles(NamedTuple):
    """Block sizes in tokens, and the Triton options of a program."""

    queries: int  # tokens per block of queries
    keys: int  # tokens per block of keys
    warps: int  # warps per program
    stages: int  # stages of the software pipeline


_MAX_HEAD_DIM = 256  # largest head width for which `_tiles` fit
_ROW_MULTIPLE = 128  # multiple of all block sizes of `_tiles`


def is_supported_width(head_dim: int) -> bool:
    """Return whether the kernels support the head width: powers of two from 16 to 256."""
    return is_triton_width(head_dim) and head_dim <= _MAX_HEAD_DIM


def _tiles(operand: Array) -> tuple[_Tiles, _Tiles]:
    """Return the tiles of the forward and of the backward kernels for operands [B, L, H, E].

    All fit the 99 KiB of shared memory of small GPUs, such as those of compute capability 8.9.
    """
    itemsize = operand.dtype.itemsize
    head_bytes = operand.shape[-1] * itemsize
    if head_bytes <= 256:
        # Three stages of 256 bytes per head fit 99 KiB in bfloat16, but not in float32.
        forward = _Tiles(128, 64, warps=8, stages=3 if itemsize == 2 else 2)
        return forward, _Tiles(64, 64, warps=4, stages=2)
    if head_bytes <= 512:
        return _Tiles(64, 64, warps=4, stages=1), _Tiles(32, 32, warps=4, stages=1)
    return _Tiles(32, 32, warps=4, stages=1), _Tiles(16, 16, warps=4, stages=1)


class _Residuals(NamedTuple):
    """Arrays saved for the backward pass."""

    q: Array  # [B, L, H, E], scaled by E ** -0.5
    k: Array  # [B, L, K, E]
    v: Array  # [B, L, K, E]
    ends: Array  # int32 [B, L]
    out: Array  # [B, L, H, E]
    logsumexp: Array  # float32 [B, H, L], logsumexp of the scores of each query


def attention(q: Array, k: Array, v: Array, ends: Array, *, interpret: bool = False) -> Array:
    """Compute `attention.dense` with GPU kernels.

    Args:
        q: queries [B, L, H, E].
        k: keys [B, L, K, E].
        v: values [B, L, K, E].
        ends: int32 [B, L].
        interpret: run the kernels in Python on any backend, for tests.

    Raises:
        ValueError: the head width is not a power of two, or is below 16 or above 256.
    """
    width = q.shape[-1]
    if not is_supported_width(width):
        raise ValueError(
            f"the GPU kernel does not support the head width {width}, only powers of two from "
            f"{MIN_TRITON_TILE} to {_MAX_HEAD_DIM}: set another policy.attention"
        )
    operands = pad_to_block(q, k, v, ends, _ROW_MULTIPLE)
    return _attention(*operands, interpret)[:, : q.shape[1]]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q: Array, k: Array, v: Array, ends: Array, interpret: bool) -> Array:
    return _forward(q, k, v, ends, interpret)[0]


def _forward(
    q: Array, k: Array, v: Array, ends: Array, interpret: bool
) -> tuple[Array, _Residuals]:
    # Scaled once here instead of in every block of scores.
    q = (q * q.shape[-1] ** -0.5).astype(q.dtype)
    out, logsumexp = _run_forward(q, k, v, ends, interpret=interpret)
    return out, _Residuals(q, k, v, ends, out, logsumexp)


def _backward(
    interpret: bool, residuals: _Residuals, d_out: Array
) -> tuple[Array, Array, Array, None]:
    product = d_out.astype(jnp.float32) * residuals.out.astype(jnp.float32)
    correction = jnp.swapaxes(jnp.sum(product, axis=-1), 1, 2)  # [B, H, L]
    inputs = BackwardInputs(
        residuals.q,
        residuals.k,
        residuals.v,
        residuals.ends,
        d_out,
        residuals.logsumexp,
        correction,
    )
    # The kernels differentiate with respect to the scaled q; dk includes the scale through q.
    dq = _run_dq(inputs, interpret=interpret)
    dk, dv = _run_dkv(inputs, interpret=interpret)
    scale = residuals.q.shape[-1] ** -0.5
    return (dq * scale).astype(residuals.q.dtype), dk, dv, None


_attention.defvjp(_forward, _backward)


# --- visible blocks and block specs --------------------------------------------------------------


def _list_visible(is_visible: Array) -> tuple[Array, Array]:
    """Return number and indices of the visible blocks, int32 [B, n] and int32 [B, n, m]."""
    # A stable sort lists the visible blocks first, in order; programs read the first `count` only.
    order = jnp.argsort(~is_visible, axis=-1, stable=True)
    return jnp.sum(is_visible, axis=-1, dtype=jnp.int32), order.astype(jnp.int32)


def _specs_by_queries(length: int, width: int, group: int, queries: int) -> OperandSpecs:
    """Return specs for a grid of (block of queries, head, batch), with all keys of the head."""
    return OperandSpecs(
        query=pl.BlockSpec((None, queries, None, width), lambda i, h, b: (b, i, h, 0)),
        key=pl.BlockSpec((None, length, None, width), lambda i, h, b: (b, 0, lax.div(h, group), 0)),
        end=pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
        row=pl.BlockSpec((None, None, queries), lambda i, h, b: (b, h, i)),
    )


def _specs_by_keys(length: int, width: int, group: int, keys: int) -> OperandSpecs:
    """Return specs for a grid of (block of keys, kv head, batch), with all queries of the group."""
    return OperandSpecs(
        query=pl.BlockSpec((None, length, group, width), lambda j, h, b: (b, 0, h, 0)),
        key=pl.BlockSpec((None, keys, None, width), lambda j, h, b: (b, j, h, 0)),
        end=pl.BlockSpec((None, keys), lambda j, h, b: (b, j)),
        row=pl.BlockSpec((None, group, length), lambda j, h, b: (b, h, 0)),
    )


def _list_specs(order: Array) -> tuple[pl.BlockSpec, pl.BlockSpec]:
    """Return the specs of the two results of `_list_visible` for one program."""
    return (
        pl.BlockSpec((None, None), lambda i, h, b: (b, i)),
        pl.BlockSpec((None, None, order.shape[2]), lambda i, h, b: (b, i, 0)),
    )


# --- forward -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="interpret")
def _run_forward(
    q: Array, k: Array, v: Array, ends: Array, *, interpret: bool
) -> tuple[Array, Array]:
    batch, length, heads, width = q.shape
    group, (tiles, _) = heads // k.shape[2], _tiles(q)
    count, order = _list_visible(visible_blocks(ends, tiles.queries, tiles.keys))
    specs = _specs_by_queries(length, width, group, tiles.queries)
    return pl.pallas_call(
        partial(_forward_kernel, tiles=tiles),
        grid=(length // tiles.queries, heads, batch),
        in_specs=[*_list_specs(order), specs.query, specs.key, specs.key, specs.end],
        out_specs=[specs.query, specs.row],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=_compiler_params(tiles),
        interpret=interpret,
    )(count, order, q, k, v, ends)


def _forward_kernel(
    count: Ref,
    order: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    out: Ref,
    logsumexp: Ref,
    *,
    tiles: _Tiles,
) -> None:
    # Blocks of this program: q and out [t, E], k and v [L, E], ends [L], order [m].
    i = pl.program_id(0)
    query = q[...]

    def add(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        row_max, row_sum, out_sum = carry
        keys = pl.ds(order[index] * tiles.keys, tiles.keys)
        mask = _mask(ends[keys], i, order[index], tiles)
        scores = jnp.where(mask, dot(query, k[keys, :].T), MASKED)
        new_max = jnp.maximum(row_max, jnp.max(scores, axis=1))
        # In a row without a visible key so far, new_max is MASKED, and the exponential is 1.
        weights = jnp.where(mask, jnp.exp(scores - new_max[:, None]), 0.0)
        rescale = jnp.exp(row_max - new_max)
        row_sum = row_sum * rescale + jnp.sum(weights, axis=1)
        value = v[keys, :]
        out_sum = out_sum * rescale[:, None] + dot(weights.astype(value.dtype), value)
        return new_max, row_sum, out_sum

    start = (
        jnp.full(tiles.queries, MASKED, jnp.float32),
        jnp.zeros(tiles.queries, jnp.float32),
        jnp.zeros(query.shape, jnp.float32),
    )
    row_max, row_sum, out_sum = lax.fori_loop(0, count[...], add, start)
    # Padding queries attend to no key: the minimum makes their output 0 instead of NaN.
    row_sum = jnp.maximum(row_sum, jnp.finfo(jnp.float32).tiny)
    out[...] = (out_sum / row_sum[:, None]).astype(out.dtype)
    logsumexp[...] = row_max + jnp.log(row_sum)


# --- backward ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="interpret")
def _run_dq(inputs: BackwardInputs, *, interpret: bool) -> Array:
    batch, length, heads, width = inputs.q.shape
    group, (_, tiles) = heads // inputs.k.shape[2], _tiles(inputs.q)
    count, order = _list_visible(visible_blocks(inputs.ends, tiles.queries, tiles.keys))
    specs = _specs_by_queries(length, width, group, tiles.queries)
    return pl.pallas_call(
        partial(_dq_kernel, tiles=tiles),
        grid=(length // tiles.queries, heads, batch),
        in_specs=[*_list_specs(order), *specs.backward_inputs()],
        out_specs=specs.query,
        out_shape=jax.ShapeDtypeStruct(inputs.q.shape, jnp.float32),
        compiler_params=_compiler_params(tiles),
        interpret=interpret,
    )(count, order, *inputs)


def _dq_kernel(
    count: Ref,
    order: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    logsumexp: Ref,
    correction: Ref,
    dq: Ref,
    *,
    tiles: _Tiles,
) -> None:
    # Blocks of this program: q, d_out and dq [t, E], k and v [L, E], ends [L], order [m].
    i = pl.program_id(0)
    query, gradient = q[...], d_out[...]
    log_row_sum, row_correction = logsumexp[...][:, None], correction[...][:, None]

    def add(index: Array, dq_sum: Array) -> Array:
        keys = pl.ds(order[index] * tiles.keys, tiles.keys)
        mask = _mask(ends[keys], i, order[index], tiles)
        key = k[keys, :]
        weights = jnp.where(mask, jnp.exp(dot(query, key.T) - log_row_sum), 0.0)
        # Softmax gradient: dS = P * (dP - D), where D is the correction.
        d_scores = weights * (dot(gradient, v[keys, :].T) - row_correction)
        return dq_sum + dot(d_scores.astype(key.dtype), key)

    dq[...] = lax.fori_loop(0, count[...], add, jnp.zeros(query.shape, jnp.float32))


@partial(jax.jit, static_argnames="interpret")
def _run_dkv(inputs: BackwardInputs, *, interpret: bool) -> tuple[Array, Array]:
    """Run a program per block of keys that loops over its visible queries, head after head."""
    batch, length, heads, width = inputs.q.shape
    kv_heads, (_, tiles) = inputs.k.shape[2], _tiles(inputs.q)
    group = heads // kv_heads
    is_visible = visible_blocks(inputs.ends, tiles.queries, tiles.keys)
    # Transposed: for each block of keys, the blocks of queries that attend to it.
    count, order = _list_visible(jnp.swapaxes(is_visible, 1, 2))
    specs = _specs_by_keys(length, width, group, tiles.keys)
    return pl.pallas_call(
        partial(_dkv_kernel, tiles=tiles, group=group),
        grid=(length // tiles.keys, kv_heads, batch),
        in_specs=[*_list_specs(order), *specs.backward_inputs()],
        out_specs=[specs.key, specs.key],
        out_shape=[
            jax.ShapeDtypeStruct(inputs.k.shape, inputs.k.dtype),
            jax.ShapeDtypeStruct(inputs.v.shape, inputs.v.dtype),
        ],
        compiler_params=_compiler_params(tiles),
        interpret=interpret,
    )(count, order, *inputs)


def _dkv_kernel(
    count: Ref,
    order: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    logsumexp: Ref,
    correction: Ref,
    dk: Ref,
    dv: Ref,
    *,
    tiles: _Tiles,
    group: int,
) -> None:
    # Blocks of this program: q and d_out [L, G, E], k, v, dk and dv [t, E], logsumexp [G, L].
    j = pl.program_id(0)
    key, value, end = k[...], v[...], ends[...]
    num_visible = count[...]

    def add(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        dk, dv = carry
        # One flat loop over heads of the group and visible blocks of queries.
        head, i = lax.div(index, num_visible), order[lax.rem(index, num_visible)]
        queries = pl.ds(i * tiles.queries, tiles.queries)
        query, gradient = q[queries, head, :], d_out[queries, head, :]
        scores = dot(query, key.T) - logsumexp[head, queries][:, None]
        weights = jnp.where(_mask(end, i, j, tiles), jnp.exp(scores), 0.0)
        d_weights = dot(gradient, value.T)
        d_scores = weights * (d_weights - correction[head, queries][:, None])
        dv = dv + dot(weights.astype(gradient.dtype).T, gradient)
        return dk + dot(d_scores.astype(query.dtype).T, query), dv

    zeros = jnp.zeros(key.shape, jnp.float32)
    dk_sum, dv_sum = lax.fori_loop(0, group * num_visible, add, (zeros, zeros))
    dk[...] = dk_sum.astype(dk.dtype)
    dv[...] = dv_sum.astype(dv.dtype)


# --- inside the kernels --------------------------------------------------------------------------


def _mask(ends: Array, i: Array, j: Array, tiles: _Tiles) -> Array:
    """Return the mask of block i of queries and block j of keys; `ends` are those of the keys."""
    query = i * tiles.queries + jnp.arange(tiles.queries)[:, None]
    key = j * tiles.keys + jnp.arange(tiles.keys)[None, :]
    return (key <= query) & (query < ends[None, :])


def _compiler_params(tiles: _Tiles) -> plgpu.CompilerParams:
    return plgpu.CompilerParams(num_warps=tiles.warps, num_stages=tiles.stages)
