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

from webagent_jax.policy.kernels.common import MASKED, dot, visible, whole_blocks

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
    whole = whole_blocks(q, k, v, ends, _ROW_MULTIPLE)
    return _attention(*whole, interpret)[:, : q.shape[1]]


class _Backward(NamedTuple):
    """The operands of both backward kernels; as in `_Saved`."""

    q: Array
    k: Array
    v: Array
    ends: Array
    d_out: Array  # [B, L, H, E], gradient of the output
    denominator: Array
    correction: Array  # float32 [B, H, L], sum of d_out · out over a head


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
    given = _Backward(saved.q, saved.k, saved.v, saved.ends, d_out, saved.denominator, correction)
    dq = _run_dq(given, interpret=interpret)
    dk, dv = _run_dkv(given, interpret=interpret)
    scale = saved.q.shape[-1] ** -0.5
    return (dq * scale).astype(saved.q.dtype), dk, dv, None


_attention.defvjp(_forward, _backward)


# --- which blocks count, and where they are ------------------------------------------------------


def _listed(seen: Array) -> tuple[Array, Array]:
    """How many blocks of the last axis are seen, int32 [B, n], and which, int32 [B, n, m]."""
    order = jnp.argsort(~seen, axis=-1, stable=True)
    return jnp.sum(seen, axis=-1, dtype=jnp.int32), order.astype(jnp.int32)


class _Specs(NamedTuple):
    """What a program sees of each operand."""

    query: pl.BlockSpec  # q, out and their gradients
    key: pl.BlockSpec  # k, v and their gradients
    end: pl.BlockSpec
    row: pl.BlockSpec  # one number for each query

    def of_backward(self) -> list[pl.BlockSpec]:
        """In the order of `_Backward`."""
        return [self.query, self.key, self.key, self.end, self.query, self.row, self.row]


def _by_queries(length: int, width: int, group: int, queries: int) -> _Specs:
    """For a grid of (block of queries, head, batch): all keys of the head."""
    return _Specs(
        query=pl.BlockSpec((None, queries, None, width), lambda i, h, b: (b, i, h, 0)),
        key=pl.BlockSpec((None, length, None, width), lambda i, h, b: (b, 0, lax.div(h, group), 0)),
        end=pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
        row=pl.BlockSpec((None, None, queries), lambda i, h, b: (b, h, i)),
    )


def _by_keys(length: int, width: int, group: int, keys: int) -> _Specs:
    """For a grid of (block of keys, key-value head, batch): all queries of its group."""
    return _Specs(
        query=pl.BlockSpec((None, length, group, width), lambda j, h, b: (b, 0, h, 0)),
        key=pl.BlockSpec((None, keys, None, width), lambda j, h, b: (b, j, h, 0)),
        end=pl.BlockSpec((None, keys), lambda j, h, b: (b, j)),
        row=pl.BlockSpec((None, group, length), lambda j, h, b: (b, h, 0)),
    )


def _list_specs(count: Array, order: Array) -> tuple[pl.BlockSpec, pl.BlockSpec]:
    """For `count` and `order` of `_listed`: a program gets its own number and list."""
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
    group, tiles = heads // k.shape[2], _FORWARD
    count, order = _listed(visible(ends, tiles.queries, tiles.keys))
    at = _by_queries(length, width, group, tiles.queries)
    return pl.pallas_call(
        partial(_forward_kernel, tiles=tiles),
        grid=(length // tiles.queries, heads, batch),
        in_specs=[*_list_specs(count, order), at.query, at.key, at.key, at.end],
        out_specs=[at.query, at.row],
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
        scores = jnp.where(mask, dot(query, k[keys, :].T), MASKED)
        now = jnp.maximum(before, jnp.max(scores, axis=1))
        weights = jnp.where(mask, jnp.exp(scores - now[:, None]), 0.0)
        shrink = jnp.exp(before - now)
        mass = mass * shrink + jnp.sum(weights, axis=1)
        value = v[keys, :]
        return now, mass, summed * shrink[:, None] + dot(weights.astype(value.dtype), value)

    start = (
        jnp.full(tiles.queries, MASKED, jnp.float32),
        jnp.zeros(tiles.queries, jnp.float32),
        jnp.zeros(query.shape, jnp.float32),
    )
    highest, mass, summed = lax.fori_loop(0, count[...], add, start)
    mass = jnp.maximum(mass, jnp.finfo(jnp.float32).tiny)  # padding sees nothing: 0, not NaN
    out[...] = (summed / mass[:, None]).astype(out.dtype)
    denominator[...] = highest + jnp.log(mass)


# --- backward ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="interpret")
def _run_dq(given: _Backward, *, interpret: bool) -> Array:
    batch, length, heads, width = given.q.shape
    group, tiles = heads // given.k.shape[2], _BACKWARD
    count, order = _listed(visible(given.ends, tiles.queries, tiles.keys))
    at = _by_queries(length, width, group, tiles.queries)
    return pl.pallas_call(
        partial(_dq_kernel, tiles=tiles),
        grid=(length // tiles.queries, heads, batch),
        in_specs=[*_list_specs(count, order), *at.of_backward()],
        out_specs=at.query,
        out_shape=jax.ShapeDtypeStruct(given.q.shape, jnp.float32),
        compiler_params=_compiled(tiles),
        interpret=interpret,
    )(count, order, *given)


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
        weights = jnp.where(mask, jnp.exp(dot(query, key.T) - log_mass), 0.0)
        d_scores = weights * (dot(gradient, v[keys, :].T) - correct)
        return summed + dot(d_scores.astype(key.dtype), key)

    dq[...] = lax.fori_loop(0, count[...], add, jnp.zeros(query.shape, jnp.float32))


@partial(jax.jit, static_argnames="interpret")
def _run_dkv(given: _Backward, *, interpret: bool) -> tuple[Array, Array]:
    """A program holds a block of keys and walks the queries that see it, head after head."""
    batch, length, heads, width = given.q.shape
    kv_heads, tiles = given.k.shape[2], _BACKWARD
    group = heads // kv_heads
    seen = visible(given.ends, tiles.queries, tiles.keys)
    count, order = _listed(jnp.swapaxes(seen, 1, 2))
    at = _by_keys(length, width, group, tiles.keys)
    return pl.pallas_call(
        partial(_dkv_kernel, tiles=tiles, group=group),
        grid=(length // tiles.keys, kv_heads, batch),
        in_specs=[*_list_specs(count, order), *at.of_backward()],
        out_specs=[at.key, at.key],
        out_shape=[
            jax.ShapeDtypeStruct(given.k.shape, given.k.dtype),
            jax.ShapeDtypeStruct(given.v.shape, given.v.dtype),
        ],
        compiler_params=_compiled(tiles),
        interpret=interpret,
    )(count, order, *given)


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
        scores = dot(query, key.T) - denominator[head, queries][:, None]
        weights = jnp.where(_mask(end, i, j, tiles), jnp.exp(scores), 0.0)
        d_weights = dot(gradient, value.T)
        d_scores = weights * (d_weights - correction[head, queries][:, None])
        dv = dv + dot(weights.astype(gradient.dtype).T, gradient)
        return dk + dot(d_scores.astype(query.dtype).T, query), dv

    zeros = jnp.zeros(key.shape, jnp.float32)
    dk_summed, dv_summed = lax.fori_loop(0, group * seen, add, (zeros, zeros))
    dk[...] = dk_summed.astype(dk.dtype)
    dv[...] = dv_summed.astype(dv.dtype)


# --- inside the kernels --------------------------------------------------------------------------


def _mask(ends: Array, i: Array, j: Array, tiles: _Tiles) -> Array:
    """bool [queries, keys] of block i of queries and block j of keys, whose ends are given."""
    query = i * tiles.queries + jnp.arange(tiles.queries)[:, None]
    key = j * tiles.keys + jnp.arange(tiles.keys)[None, :]
    return (key <= query) & (query < ends[None, :])


def _compiled(tiles: _Tiles) -> plgpu.CompilerParams:
    return plgpu.CompilerParams(num_warps=tiles.warps, num_stages=tiles.stages)
