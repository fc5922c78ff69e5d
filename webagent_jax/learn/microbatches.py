"""Microbatches of forest rows and gradient accumulation, over a mesh and over processes."""

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

# types.py must not import JAX, so the pytree registration is here.
jax.tree_util.register_dataclass(ForestRows)

Params = Any
Sums = dict[str, Array]  # scalars that add up over microbatches, including "loss"
Objective = Callable[[Params, ForestRows], tuple[Array, Sums]]


def split_microbatches(rows: ForestRows, microbatch: int, mesh: Mesh | None = None) -> ForestRows:
    """Split rows [B, ...] into microbatches [B / b, b, ...], each sharded over the mesh.

    If the mesh spans several processes, each contributes the same number of rows and an equal part
    of every microbatch.

    Args:
        rows: rows of this process.
        microbatch: b, over all processes.
        mesh: None on a single device.

    Raises:
        ValueError: the rows do not divide evenly into microbatches, or an array has a wrong shape
            or dtype.
    """
    _check_rows(rows)
    num_processes = _num_processes(mesh)
    num_local = microbatch // num_processes
    if microbatch % num_processes or len(rows.tokens) % num_local:
        raise ValueError(
            f"{len(rows.tokens)} rows on each of {num_processes} processes do not divide into "
            f"microbatches of {microbatch}: pack them with row_multiple={max(num_local, 1)}"
        )
    # Consecutive rows form a microbatch, so trailing empty rows form trailing empty microbatches.
    parts = jax.tree.map(lambda x: np.reshape(x, (-1, num_local, *x.shape[1:])), rows)
    if mesh is None:
        return parts

    def shard(x: Any) -> Array:
        # Global shape [n, b, ...]; this process provides `num_local` of the b rows.
        shape = (len(x), microbatch, *x.shape[2:])
        batch_sharding = sharding.batch_sharding(mesh, shape, rows_axis=1)
        return jax.make_array_from_process_local_data(batch_sharding, x, shape)

    sharded: ForestRows = jax.tree.map(shard, parts)
    return sharded


def _check_rows(rows: ForestRows) -> None:
    """Check the arrays against the shapes and dtypes that `ForestRows` documents."""
    per_token, per_target = np.shape(rows.tokens), np.shape(rows.target_indices)
    for name, shape, dtype in (
        ("tokens", per_token, np.int32),
        ("positions", per_token, np.int32),
        ("parents", per_token, np.int32),
        ("subtree_ends", per_token, np.int32),
        ("target_indices", (*per_token[:1], *per_target[1:]), np.int32),
        ("loss_weights", per_target, np.float32),
        ("advantages", per_target, np.float32),
        ("behavior_logp", per_target, np.float32),
        ("prox_logp", per_target, np.float32),
    ):
        array = getattr(rows, name)
        if np.shape(array) != shape or array.dtype != dtype:
            raise ValueError(
                f"ForestRows.{name} must be {np.dtype(dtype)} {list(shape)}, not {array.dtype} "
                f"{list(np.shape(array))}"
            )


def _num_processes(mesh: Mesh | None) -> int:
    return len({device.process_index for device in mesh.devices.flat}) if mesh is not None else 1


def gather_local_rows(parts: Array) -> FloatArray:
    """Return the part of [n, b, ...] that belongs to the rows of this process."""
    # Devices that differ only in the tensor axis hold equal rows; the dict keeps one copy of them.
    shards = {shard.index[1].start or 0: shard.data for shard in parts.addressable_shards}
    return np.concatenate([np.asarray(shards[start]) for start in sorted(shards)], axis=1)


def accumulate_gradients(
    objective: Objective, params: Params, parts: ForestRows, mesh: Mesh | None = None
) -> tuple[Params, Sums]:
    """Return gradient and sums over microbatches; trailing empty ones are skipped.

    Args:
        objective: returns the loss and the sums of a microbatch.
        params: trained params.
        parts: microbatches [n, b, ...].
        mesh: shards the gradient like the params.
    """
    gradient = jax.grad(objective, has_aux=True)

    def constrain(sums: tuple[Params, Sums]) -> tuple[Params, Sums]:
        if mesh is None:
            return sums
        # Sharded like the params, the accumulator takes no more memory per device than they do.
        shardings = sharding.param_shardings(sums[0], mesh)
        return jax.lax.with_sharding_constraint(sums[0], shardings), sums[1]

    def add(i: Array, sums: tuple[Params, Sums]) -> tuple[Params, Sums]:
        part = constrain(gradient(params, take_microbatch(parts, i)))
        return constrain(jax.tree.map(jnp.add, sums, part))

    # The loop starts from zeros in the structure of the result; only shapes are computed here.
    shapes = jax.eval_shape(gradient, params, take_microbatch(parts, 0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    # The number of iterations is a value and not a shape, so empty microbatches cost nothing.
    return jax.lax.fori_loop(0, num_nonempty(parts), add, constrain(zeros))


def take_microbatch(parts: ForestRows, i: Array | int) -> ForestRows:
    """Return microbatch i of [n, b, ...]."""
    take = partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False)
    return jax.tree.map(take, parts)


def num_nonempty(parts: ForestRows) -> Array:
    """Return the number of microbatches up to the last one that is not empty."""
    # [n]; an empty microbatch before the last one with weights is not skipped.
    weighted = jnp.any(parts.loss_weights != 0, axis=(1, 2))
    return jnp.max(jnp.where(weighted, jnp.arange(len(weighted)) + 1, 0))
