"""The rows of a batch a few at a time, on one device or over a mesh, of one host or of several."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from webagent_jax.policy import sharding
from webagent_jax.types import FloatArray, ForestRows

jax.tree_util.register_dataclass(ForestRows)

Params = Any
Sums = dict[str, Array]  # scalars that add up over the parts of a batch, "loss" among them
Objective = Callable[[Params, ForestRows], tuple[Array, Sums]]


def split(rows: ForestRows, microbatch: int, mesh: Mesh | None) -> ForestRows:
    """Rows [B, ...] as microbatches [B / b, b, ...], each cut over the mesh.

    Where the mesh spans several hosts, each brings as many rows, and has its part of every
    microbatch.
    """
    own = microbatch // _hosts(mesh)
    if microbatch % _hosts(mesh) or len(rows.tokens) % own:
        raise ValueError(
            f"{len(rows.tokens)} rows on each of {_hosts(mesh)} hosts do not make microbatches of "
            f"{microbatch}: build them with row_multiple={max(own, 1)}"
        )
    parts = jax.tree.map(lambda x: np.reshape(x, (-1, own, *x.shape[1:])), rows)
    if mesh is None:
        return parts

    def place(x: Any) -> Array:
        shape = (len(x), microbatch, *x.shape[2:])
        at = sharding.batch_sharding(mesh, shape, rows_axis=1)
        return jax.make_array_from_process_local_data(at, x, shape)

    placed: ForestRows = jax.tree.map(place, parts)
    return placed


def _hosts(mesh: Mesh | None) -> int:
    return len({device.process_index for device in mesh.devices.flat}) if mesh is not None else 1


def own_rows(parts: Array) -> FloatArray:
    """What `split` has placed of [n, b, ...], back on the host that brought it."""
    shards = {shard.index[1].start or 0: shard.data for shard in parts.addressable_shards}
    return np.concatenate([np.asarray(shards[start]) for start in sorted(shards)], axis=1)


def accumulate(
    objective: Objective, params: Params, parts: ForestRows, mesh: Mesh | None = None
) -> tuple[Params, Sums]:
    """Gradient and sums over microbatches [n, b, ...], leaving out the last ones that are empty.

    On a mesh the gradient is cut as the params are.
    """
    gradient = jax.grad(objective, has_aux=True)

    def cut(sums: tuple[Params, Sums]) -> tuple[Params, Sums]:
        if mesh is None:
            return sums
        at = sharding.param_shardings(sums[0], mesh)
        return jax.lax.with_sharding_constraint(sums[0], at), sums[1]

    def add(i: Array, sums: tuple[Params, Sums]) -> tuple[Params, Sums]:
        return cut(jax.tree.map(jnp.add, sums, cut(gradient(params, part(parts, i)))))

    shapes = jax.eval_shape(gradient, params, part(parts, 0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.fori_loop(0, live(parts), add, cut(zeros))


def part(parts: ForestRows, i: Array | int) -> ForestRows:
    take = partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False)
    return jax.tree.map(take, parts)


def live(parts: ForestRows) -> Array:
    """Microbatches up to the last one that holds something."""
    weighted = jnp.any(parts.weights != 0, axis=(1, 2))
    return jnp.max(jnp.where(weighted, jnp.arange(len(weighted)) + 1, 0))
