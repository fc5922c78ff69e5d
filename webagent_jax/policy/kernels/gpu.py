"""Forest attention as Pallas kernels for GPU (Triton): forward, and the two halves of backward.

FlashAttention-2 (Dao 2023, arXiv 2307.08691) with the forest mask. Every program walks the list of
the blocks it can see, so that the others cost nothing, not even a look.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

_MASKED = -1e30
_SMALLEST_HEAD = 16  # Triton multiplies no narrower tiles

Ref = Any


class _Tiles(NamedTuple):
    """Tokens of a block of queries and of one of keys, and how Triton runs a program."""

    queries: int
    keys: int
    warps: int
    stages: int


_FORWARD = _Tiles(128, 64, warps=8, stages=3)
_BACKWARD = _Tiles(64, 64, warps=4, stages=2)
_ROW_MULTIPLE = 128  # of every block size above


class _Saved(NamedTuple):
    """What the backward pass needs."""

    q: Array  # [B, L, H, E], scaled
    k: Array  # [B, L, K, E]
    v: Array  # [B, L, K, E]
    ends: Array  # int32 [B, L]
    out: Array  # [B, L, H, E]
    denominator: Array  # float32 [B, H, L], logarithm of the softmax's denominator


def attention(q: Array, k: Array, v: Array, ends: Array, *, interpret: bool = False) -> Array:
    """As `attention.dense`: q [B, L, H, E], k and v [B, L, K, E], ends [B, L] -> [B, L, H, E].

    Args:
        interpret: run the kernels in Python, on any backend, to test them.

    Raises:
        ValueError: the head width is no power of two, or below 16.
    """
    width = q.shape[-1]
    if width < _SMALLEST_HEAD or width & (width - 1):
        raise ValueError(
            f"the GPU kernel needs a head width of a power of two from {_SMALLEST_HEAD} on, "
            f"not {width}: choose another attention"
        )
    length = q.shape[1]
    padding = -length % _ROW_MULTIPLE
    if padding:
        q, k, v = (jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))) for x in (q, k, v))
        ends = jnp.pad(ends, ((0, 0), (0, padding)))  # a key that ends at 0 is seen by none
    return _attention(q, k, v, ends, interpret)[:, :length]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q: Array, k: Array, v: Array, ends: Array, interpret: bool) -> Array:
    return _forward(q, k, v, ends, interpret)[0]


def _forward(q: Array, k: Array, v: Array, ends: Array, interpret: bool) -> tuple[Array, _Saved]:
    q = (q * q.shape[-1] ** -0.5).astype(q.dtype)
    out, denominator = _run_forward(q, k, v, ends, interpret=interpret)
    return out, _Saved(q, k, v, ends, out, denominator)


def _backward(interpret: bool, saved: _Saved, d_out: Array) -> tuple[Array, Array, Array, None]:
    product = d_out.astype(jnp.float32) * saved.out.astype(jnp.float32)
    correction = jnp.swapaxes(jnp.sum(product, axis=-1), 1, 2)  # [B, H, L]
    operands = (saved.q, saved.k, saved.v, saved.ends, d_out, saved.denominator, correction)
    dq = _run_dq(*operands, interpret=interpret)
    dk, dv = _run_dkv(*operands, interpret=interpret)
    scale = saved.q.shape[-1] ** -0.5
    return (dq * scale).astype(saved.q.dtype), dk, dv, None


_attention.defvjp(_forward, _backward)


# --- which blocks count --------------------------------------------------------------------------


def _visible(ends: Array, tiles: _Tiles) -> Array:
    """bool [B, blocks of queries, blocks of keys]: some query sees some key."""
    last = jnp.max(ends.reshape(len(ends), -1, tiles.keys), axis=-1)
    first_query = jnp.arange(ends.shape[1] // tiles.queries) * tiles.queries
    first_key = jnp.arange(last.shape[1]) * tiles.keys
    past = first_key[None, :] < first_query[:, None] + tiles.queries
    return past[None] & (last[:, None, :] > first_query[None, :, None])


def _listed(visible: Array) -> tuple[Array, Array]:
    """How many blocks of the last axis are visible, int32 [B, n], and which, int32 [B, n, m]."""
    order = jnp.argsort(~visible, axis=-1, stable=True)
    return jnp.sum(visible, axis=-1, dtype=jnp.int32), order.astype(jnp.int32)


# --- forward -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="interpret")
def _run_forward(
    q: Array, k: Array, v: Array, ends: Array, *, interpret: bool
) -> tuple[Array, Array]:
    batch, length, heads, width = q.shape
    group, tiles = heads // k.shape[2], _FORWARD
    count, order = _listed(_visible(ends, tiles))
    query = pl.BlockSpec((None, tiles.queries, None, width), lambda i, h, b: (b, i, h, 0))
    key = pl.BlockSpec((None, length, None, width), lambda i, h, b: (b, 0, lax.div(h, group), 0))
    return pl.pallas_call(
        partial(_forward_kernel, tiles=tiles),
        grid=(length // tiles.queries, heads, batch),
        in_specs=[*_list_specs(count, order), query, key, key, _row_spec(length)],
        out_specs=[query, pl.BlockSpec((None, None, tiles.queries), lambda i, h, b: (b, h, i))],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=_compiled(tiles),
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
    denominator: Ref,
    *,
    tiles: _Tiles,
) -> None:
    i = pl.program_id(0)
    query = q[...]

    def add(at: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        before, mass, summed = carry
        keys = pl.ds(order[at] * tiles.keys, tiles.keys)
        mask = _mask(ends[keys], i, order[at], tiles)
        scores = jnp.where(mask, _dot(query, k[keys, :].T), _MASKED)
        now = jnp.maximum(before, jnp.max(scores, axis=1))
        weights = jnp.where(mask, jnp.exp(scores - now[:, None]), 0.0)
        shrink = jnp.exp(before - now)
        mass = mass * shrink + jnp.sum(weights, axis=1)
        value = v[keys, :]
        return now, mass, summed * shrink[:, None] + _dot(weights.astype(value.dtype), value)

    start = (
        jnp.full(tiles.queries, _MASKED, jnp.float32),
        jnp.zeros(tiles.queries, jnp.float32),
        jnp.zeros(query.shape, jnp.float32),
    )
    highest, mass, summed = lax.fori_loop(0, count[...], add, start)
    mass = jnp.maximum(mass, jnp.finfo(jnp.float32).tiny)  # padding sees nothing: 0, not NaN
    out[...] = (summed / mass[:, None]).astype(out.dtype)
    denominator[...] = highest + jnp.log(mass)


# --- backward ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="interpret")
def _run_dq(
    q: Array,
    k: Array,
    v: Array,
    ends: Array,
    d_out: Array,
    denominator: Array,
    correction: Array,
    *,
    interpret: bool,
) -> Array:
    batch, length, heads, width = q.shape
    group, tiles = heads // k.shape[2], _BACKWARD
    count, order = _listed(_visible(ends, tiles))
    query = pl.BlockSpec((None, tiles.queries, None, width), lambda i, h, b: (b, i, h, 0))
    key = pl.BlockSpec((None, length, None, width), lambda i, h, b: (b, 0, lax.div(h, group), 0))
    row = pl.BlockSpec((None, None, tiles.queries), lambda i, h, b: (b, h, i))
    specs = [*_list_specs(count, order), query, key, key, _row_spec(length), query, row, row]
    return pl.pallas_call(
        partial(_dq_kernel, tiles=tiles),
        grid=(length // tiles.queries, heads, batch),
        in_specs=specs,
        out_specs=query,
        out_shape=jax.ShapeDtypeStruct(q.shape, jnp.float32),
        compiler_params=_compiled(tiles),
        interpret=interpret,
    )(count, order, q, k, v, ends, d_out, denominator, correction)


def _dq_kernel(
    count: Ref,
    order: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    denominator: Ref,
    correction: Ref,
    dq: Ref,
    *,
    tiles: _Tiles,
) -> None:
    i = pl.program_id(0)
    query, gradient = q[...], d_out[...]
    log_mass, correct = denominator[...][:, None], correction[...][:, None]

    def add(at: Array, summed: Array) -> Array:
        keys = pl.ds(order[at] * tiles.keys, tiles.keys)
        mask = _mask(ends[keys], i, order[at], tiles)
        key = k[keys, :]
        weights = jnp.where(mask, jnp.exp(_dot(query, key.T) - log_mass), 0.0)
        d_scores = weights * (_dot(gradient, v[keys, :].T) - correct)
        return summed + _dot(d_scores.astype(key.dtype), key)

    dq[...] = lax.fori_loop(0, count[...], add, jnp.zeros(query.shape, jnp.float32))


@partial(jax.jit, static_argnames="interpret")
def _run_dkv(
    q: Array,
    k: Array,
    v: Array,
    ends: Array,
    d_out: Array,
    denominator: Array,
    correction: Array,
    *,
    interpret: bool,
) -> tuple[Array, Array]:
    """A program holds a block of keys and walks the queries that see it, head after head."""
    batch, length, heads, width = q.shape
    kv_heads, tiles = k.shape[2], _BACKWARD
    group = heads // kv_heads
    count, order = _listed(jnp.swapaxes(_visible(ends, tiles), 1, 2))
    key = pl.BlockSpec((None, tiles.keys, None, width), lambda j, h, b: (b, j, h, 0))
    query = pl.BlockSpec((None, length, group, width), lambda j, h, b: (b, 0, h, 0))
    row = pl.BlockSpec((None, group, length), lambda j, h, b: (b, h, 0))
    end = pl.BlockSpec((None, tiles.keys), lambda j, h, b: (b, j))
    return pl.pallas_call(
        partial(_dkv_kernel, tiles=tiles, group=group),
        grid=(length // tiles.keys, kv_heads, batch),
        in_specs=[*_list_specs(count, order), query, key, key, end, query, row, row],
        out_specs=[key, key],
        out_shape=[
            jax.ShapeDtypeStruct(k.shape, k.dtype),
            jax.ShapeDtypeStruct(v.shape, v.dtype),
        ],
        compiler_params=_compiled(tiles),
        interpret=interpret,
    )(count, order, q, k, v, ends, d_out, denominator, correction)


def _dkv_kernel(
    count: Ref,
    order: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    ends: Ref,
    d_out: Ref,
    denominator: Ref,
    correction: Ref,
    dk: Ref,
    dv: Ref,
    *,
    tiles: _Tiles,
    group: int,
) -> None:
    j = pl.program_id(0)
    key, value, end = k[...], v[...], ends[...]
    seen = count[...]

    def add(at: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        dk, dv = carry
        head, i = lax.div(at, seen), order[lax.rem(at, seen)]
        queries = pl.ds(i * tiles.queries, tiles.queries)
        query, gradient = q[queries, head, :], d_out[queries, head, :]
        scores = _dot(query, key.T) - denominator[head, queries][:, None]
        weights = jnp.where(_mask(end, i, j, tiles), jnp.exp(scores), 0.0)
        d_weights = _dot(gradient, value.T)
        d_scores = weights * (d_weights - correction[head, queries][:, None])
        dv = dv + _dot(weights.astype(gradient.dtype).T, gradient)
        return dk + _dot(d_scores.astype(query.dtype).T, query), dv

    zeros = jnp.zeros(key.shape, jnp.float32)
    dk_summed, dv_summed = lax.fori_loop(0, group * seen, add, (zeros, zeros))
    dk[...] = dk_summed.astype(dk.dtype)
    dv[...] = dv_summed.astype(dv.dtype)


# --- inside the kernels --------------------------------------------------------------------------


def _list_specs(count: Array, order: Array) -> tuple[pl.BlockSpec, pl.BlockSpec]:
    """For `count` and `order` of `_listed`: a program gets its own number and list."""
    return (
        pl.BlockSpec((None, None), lambda i, h, b: (b, i)),
        pl.BlockSpec((None, None, order.shape[2]), lambda i, h, b: (b, i, 0)),
    )


def _row_spec(length: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, length), lambda i, h, b: (b, 0))


def _mask(ends: Array, i: Array, j: Array, tiles: _Tiles) -> Array:
    """bool [queries, keys] of block i of queries and block j of keys, whose ends are given."""
    query = i * tiles.queries + jnp.arange(tiles.queries)[:, None]
    key = j * tiles.keys + jnp.arange(tiles.keys)[None, :]
    return (key <= query) & (query < ends[None, :])


def _dot(a: Array, b: Array) -> Array:
    """float32 product; exact for float32 operands."""
    exact = lax.Precision.HIGHEST if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return jnp.dot(a, b, preferred_element_type=jnp.float32, precision=exact)


def _compiled(tiles: _Tiles) -> plgpu.CompilerParams:
    return plgpu.CompilerParams(num_warps=tiles.warps, num_stages=tiles.stages)
