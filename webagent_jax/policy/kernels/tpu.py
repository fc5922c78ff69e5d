"""Forest attention as Pallas kernels for TPU: forward, and the two halves of backward.

FlashAttention-2 (Dao 2023, arXiv 2307.08691) with the forest mask. Blocks of keys that a block of
queries cannot see are neither fetched nor computed: a table in scalar memory leads every grid step
to the next block that counts, so that the pipeline fetches nothing in between.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from webagent_jax.policy.kernels.common import MASKED, dot, visible, whole_blocks

_LANES = 128
_BLOCK = 512  # tokens of a block of queries, and of one of keys
_STATIC = ("block", "interpret")

Ref = Any


class _Saved(NamedTuple):
    """What the backward pass needs. Heads stand before tokens."""

    q: Array  # [B, H, L, E], scaled
    k: Array  # [B, K, L, E]
    v: Array  # [B, K, L, E]
    ends: Array  # int32 [B, 1, L]
    out: Array  # [B, H, L, E]
    denominator: Array  # float32 [B, H, 1, L], logarithm of the softmax's denominator


def attention(
    q: Array, k: Array, v: Array, ends: Array, *, block: int = _BLOCK, interpret: bool = False
) -> Array:
    """As `attention.dense`: q [B, L, H, E], k and v [B, L, K, E], ends [B, L] -> [B, L, H, E].

    Args:
        block: a multiple of 128; rows are padded to whole blocks.
        interpret: run the kernels in Python, on any backend, to test them.
    """
    length = q.shape[1]
    block = min(block, -(-length // _LANES) * _LANES)
    return _attention(*whole_blocks(q, k, v, ends, block), block, interpret)[:, :length]


class _Backward(NamedTuple):
    """The operands of both backward kernels; as in `_Saved`."""

    q: Array
    k: Array
    v: Array
    ends: Array
    d_out: Array  # [B, H, L, E], gradient of the output
    denominator: Array
    correction: Array  # float32 [B, H, 1, L], sum of d_out · out over a head


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _attention(q: Array, k: Array, v: Array, ends: Array, block: int, interpret: bool) -> Array:
    return _forward(q, k, v, ends, block, interpret)[0]


def _forward(
    q: Array, k: Array, v: Array, ends: Array, block: int, interpret: bool
) -> tuple[Array, _Saved]:
    scaled = (q * q.shape[-1] ** -0.5).astype(q.dtype)
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (scaled, k, v))
    ends = ends[:, None]
    out, denominator = _run_forward(q, k, v, ends, block=block, interpret=interpret)
    return jnp.swapaxes(out, 1, 2), _Saved(q, k, v, ends, out, denominator)


def _backward(
    block: int, interpret: bool, saved: _Saved, gradient: Array
) -> tuple[Array, Array, Array, None]:
    d_out = jnp.swapaxes(gradient, 1, 2)
    product = d_out.astype(jnp.float32) * saved.out.astype(jnp.float32)
    correction = jnp.sum(product, axis=-1)[:, :, None]
    given = _Backward(saved.q, saved.k, saved.v, saved.ends, d_out, saved.denominator, correction)
    dq = _run_dq(given, block=block, interpret=interpret)
    dk, dv = _run_dkv(given, block=block, interpret=interpret)
    scale = saved.q.shape[-1] ** -0.5
    dq = (dq * scale).astype(saved.q.dtype)
    return jnp.swapaxes(dq, 1, 2), jnp.swapaxes(dk, 1, 2), jnp.swapaxes(dv, 1, 2), None


_attention.defvjp(_forward, _backward)


# --- which blocks count, and where they are ------------------------------------------------------


def _next(seen: Array) -> Array:
    """int32, as `seen`: the first block from here on, on the last axis, that is seen.

    Where none follows, the last that was: it is in memory already.
    """
    count = seen.shape[-1]
    index = lax.broadcasted_iota(jnp.int32, seen.shape, seen.ndim - 1)
    ahead = jnp.where(seen, index, count)
    ahead = lax.cummin(ahead, axis=seen.ndim - 1, reverse=True)
    final = jnp.max(jnp.where(seen, index, 0), axis=-1, keepdims=True)
    return jnp.where(ahead < count, ahead, final)


class _Specs(NamedTuple):
    """What a step of the grid sees of each operand."""

    query: pl.BlockSpec  # q, out and their gradients
    key: pl.BlockSpec  # k, v and their gradients
    end: pl.BlockSpec
    row: pl.BlockSpec  # one number for each query

    def of_backward(self) -> list[pl.BlockSpec]:
        """In the order of `_Backward`."""
        return [self.query, self.key, self.key, self.end, self.query, self.row, self.row]


def _by_queries(block: int, width: int, group: int) -> _Specs:
    """For a grid of (batch, head, block of queries, block of keys)."""

    def key_at(b: Any, h: Any, i: Any, j: Any, seen: Ref, ahead: Ref) -> tuple[Any, ...]:
        return b, lax.div(h, group), ahead[b, i, j], 0

    return _Specs(
        query=pl.BlockSpec((1, 1, block, width), lambda b, h, i, j, *_: (b, h, i, 0)),
        key=pl.BlockSpec((1, 1, block, width), key_at),
        end=pl.BlockSpec((1, 1, block), lambda b, h, i, j, seen, ahead: (b, 0, ahead[b, i, j])),
        row=pl.BlockSpec((1, 1, 1, block), lambda b, h, i, j, *_: (b, h, 0, i)),
    )


def _by_keys(block: int, width: int, group: int) -> _Specs:
    """For a grid of (batch, key-value head, block of keys, head of its group, block of queries)."""

    def query_at(b: Any, h: Any, j: Any, g: Any, i: Any, seen: Ref, ahead: Ref) -> tuple[Any, ...]:
        return b, h * group + g, ahead[b, j, i], 0

    def row_at(b: Any, h: Any, j: Any, g: Any, i: Any, seen: Ref, ahead: Ref) -> tuple[Any, ...]:
        return b, h * group + g, 0, ahead[b, j, i]

    return _Specs(
        query=pl.BlockSpec((1, 1, block, width), query_at),
        key=pl.BlockSpec((1, 1, block, width), lambda b, h, j, g, i, *_: (b, h, j, 0)),
        end=pl.BlockSpec((1, 1, block), lambda b, h, j, g, i, *_: (b, 0, j)),
        row=pl.BlockSpec((1, 1, 1, block), row_at),
    )


# --- forward -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=_STATIC)
def _run_forward(
    q: Array, k: Array, v: Array, ends: Array, *, block: int, interpret: bool
) -> tuple[Array, Array]:
    batch, heads, length, width = q.shape
    group, count = heads // k.shape[1], length // block
    seen = visible(ends[:, 0], block, block)
    at = _by_queries(block, width, group)
    return pl.pallas_call(
        partial(_forward_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, heads, count, count),
            in_specs=[at.query, at.key, at.key, at.end],
            out_specs=[at.query, at.row],
            scratch_shapes=[
                pltpu.VMEM((block, _LANES), jnp.float32),
                pltpu.VMEM((block, _LANES), jnp.float32),
                pltpu.VMEM((block, width), jnp.float32),
            ],
        ),
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct((batch, heads, 1, length), jnp.float32),
        ],
        compiler_params=_parallel(3),
        interpret=interpret,
    )(seen.astype(jnp.int32), _next(seen), q, k, v, ends)


def _forward_kernel(
    seen: Ref,
    _: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    out: Ref,
    denominator: Ref,
    highest: Ref,
    total: Ref,
    summed: Ref,
    *,
    block: int,
) -> None:
    b, i, j = pl.program_id(0), pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _start() -> None:
        highest[...] = jnp.full_like(highest, MASKED)
        total[...] = jnp.zeros_like(total)
        summed[...] = jnp.zeros_like(summed)

    @pl.when(seen[b, i, j] != 0)
    def _add() -> None:
        mask = _mask(ends[0], i, j, block)
        scores = jnp.where(mask, dot(q[0, 0], k[0, 0], ((1,), (1,))), MASKED)
        before = highest[:, :1]
        now = jnp.maximum(before, jnp.max(scores, axis=1, keepdims=True))
        weights = jnp.where(mask, jnp.exp(scores - now), 0.0)
        shrink = jnp.exp(before - now)
        mass = shrink * total[:, :1] + jnp.sum(weights, axis=1, keepdims=True)
        highest[...] = jnp.broadcast_to(now, highest.shape)
        total[...] = jnp.broadcast_to(mass, total.shape)
        summed[...] = summed[...] * shrink + dot(weights.astype(v.dtype), v[0, 0])

    @pl.when(j == pl.num_programs(3) - 1)
    def _finish() -> None:
        mass = jnp.maximum(total[...], jnp.finfo(jnp.float32).tiny)  # padding sees nothing
        out[0, 0] = (summed[...] / mass[:, :1]).astype(out.dtype)
        denominator[0, 0] = (highest[...] + jnp.log(mass)).T[:1]


# --- backward ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=_STATIC)
def _run_dq(given: _Backward, *, block: int, interpret: bool) -> Array:
    batch, heads, length, width = given.q.shape
    group, count = heads // given.k.shape[1], length // block
    seen = visible(given.ends[:, 0], block, block)
    at = _by_queries(block, width, group)
    return pl.pallas_call(
        partial(_dq_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, heads, count, count),
            in_specs=at.of_backward(),
            out_specs=at.query,
            scratch_shapes=[pltpu.VMEM((block, width), jnp.float32)],
        ),
        out_shape=jax.ShapeDtypeStruct(given.q.shape, jnp.float32),
        compiler_params=_parallel(3),
        interpret=interpret,
    )(seen.astype(jnp.int32), _next(seen), *given)


def _dq_kernel(
    seen: Ref,
    _: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    denominator: Ref,
    correction: Ref,
    dq: Ref,
    summed: Ref,
    *,
    block: int,
) -> None:
    b, i, j = pl.program_id(0), pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _start() -> None:
        summed[...] = jnp.zeros_like(summed)

    @pl.when(seen[b, i, j] != 0)
    def _add() -> None:
        mask = _mask(ends[0], i, j, block)
        scores = dot(q[0, 0], k[0, 0], ((1,), (1,)))
        weights = jnp.where(mask, jnp.exp(scores - _column(denominator[0, 0])), 0.0)
        d_weights = dot(d_out[0, 0], v[0, 0], ((1,), (1,)))
        d_scores = weights * (d_weights - _column(correction[0, 0]))
        summed[...] += dot(d_scores.astype(k.dtype), k[0, 0])

    @pl.when(j == pl.num_programs(3) - 1)
    def _finish() -> None:
        dq[0, 0] = summed[...]


@partial(jax.jit, static_argnames=_STATIC)
def _run_dkv(given: _Backward, *, block: int, interpret: bool) -> tuple[Array, Array]:
    """The grid walks, for every block of keys, the blocks of queries of all heads of its group."""
    batch, heads, length, width = given.q.shape
    kv_heads = given.k.shape[1]
    group, count = heads // kv_heads, length // block
    seen = jnp.swapaxes(visible(given.ends[:, 0], block, block), 1, 2)  # [B, keys, queries]
    at = _by_keys(block, width, group)
    return pl.pallas_call(
        partial(_dkv_kernel, block=block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, kv_heads, count, group, count),
            in_specs=at.of_backward(),
            out_specs=[at.key, at.key],
            scratch_shapes=[pltpu.VMEM((block, width), jnp.float32)] * 2,
        ),
        out_shape=[
            jax.ShapeDtypeStruct(given.k.shape, given.k.dtype),
            jax.ShapeDtypeStruct(given.v.shape, given.v.dtype),
        ],
        compiler_params=_parallel(3, 2),
        interpret=interpret,
    )(seen.astype(jnp.int32), _next(seen), *given)


def _dkv_kernel(
    seen: Ref,
    _: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    denominator: Ref,
    correction: Ref,
    dk: Ref,
    dv: Ref,
    dk_summed: Ref,
    dv_summed: Ref,
    *,
    block: int,
) -> None:
    """Works on transposed scores [keys, queries]: what belongs to a query is then a row."""
    b, j, g, i = pl.program_id(0), pl.program_id(2), pl.program_id(3), pl.program_id(4)

    @pl.when((g == 0) & (i == 0))
    def _start() -> None:
        dk_summed[...] = jnp.zeros_like(dk_summed)
        dv_summed[...] = jnp.zeros_like(dv_summed)

    @pl.when(seen[b, j, i] != 0)
    def _add() -> None:
        key = j * block + lax.broadcasted_iota(jnp.int32, (block, block), 0)
        query = i * block + lax.broadcasted_iota(jnp.int32, (block, block), 1)
        mask = (key <= query) & (query < _column(ends[0]))
        scores = dot(k[0, 0], q[0, 0], ((1,), (1,)))
        weights = jnp.where(mask, jnp.exp(scores - denominator[0, 0]), 0.0)
        d_weights = dot(v[0, 0], d_out[0, 0], ((1,), (1,)))
        d_scores = weights * (d_weights - correction[0, 0])
        dv_summed[...] += dot(weights.astype(d_out.dtype), d_out[0, 0])
        dk_summed[...] += dot(d_scores.astype(q.dtype), q[0, 0])

    @pl.when((g == pl.num_programs(3) - 1) & (i == pl.num_programs(4) - 1))
    def _finish() -> None:
        dk[0, 0] = dk_summed[...].astype(dk.dtype)
        dv[0, 0] = dv_summed[...].astype(dv.dtype)


# --- inside the kernels --------------------------------------------------------------------------


def _mask(ends: Array, i: Array, j: Array, block: int) -> Array:
    """bool [t, t] of the queries of block i and the keys of block j; ends int32 [1, t]."""
    query = i * block + lax.broadcasted_iota(jnp.int32, (block, block), 0)
    key = j * block + lax.broadcasted_iota(jnp.int32, (block, block), 1)
    return (key <= query) & (query < ends)


def _column(row: Array) -> Array:
    """[1, t] as [t, 1]; a transposition wants whole tiles."""
    return jnp.broadcast_to(row, (_LANES, row.shape[1])).T[:, :1]


def _parallel(free: int, in_order: int = 1) -> pltpu.CompilerParams:
    semantics: list[Literal["parallel", "arbitrary"]] = ["parallel"] * free
    semantics += ["arbitrary"] * in_order
    return pltpu.CompilerParams(dimension_semantics=semantics)
