"""Sharding of arrays over a mesh by one table from logical axes to mesh axes.

Logical axes ("embed", "heads", ...) describe every array of the policy. The table maps each of them
to the mesh axes that shard it. It determines the shardings of params, optimizer moments, batches
and KV caches; XLA (GSPMD) inserts the communication.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

from webagent_jax.config import ConfigError

MESH_AXES = ("data", "fsdp", "tensor")

LogicalAxisRules = Mapping[str, tuple[str, ...]]

LOGICAL_AXIS_RULES: LogicalAxisRules = {
    "rows": ("data", "fsdp"),  # rows of a batch
    "vocab": ("tensor",),
    # Width of params. That of activations is "hidden", which is never sharded.
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "layers": (),
    "head_dim": (),
    "norm": (),
    "rank": (),  # rank of LoRA adapters
    "tokens": (),
    "pages": (),  # pages of the KV cache
    "hidden": (),  # width of activations
}

# Logical axes by the last two names on the path to a param of a layer, without the layer axis.
_LAYER_AXES = {
    ("q", "kernel"): ("embed", "heads", "head_dim"),
    ("k", "kernel"): ("embed", "kv_heads", "head_dim"),
    ("v", "kernel"): ("embed", "kv_heads", "head_dim"),
    ("o", "kernel"): ("heads", "head_dim", "embed"),
    ("q", "bias"): ("heads", "head_dim"),
    ("k", "bias"): ("kv_heads", "head_dim"),
    ("v", "bias"): ("kv_heads", "head_dim"),
    ("gate", "kernel"): ("embed", "mlp"),
    ("up", "kernel"): ("embed", "mlp"),
    ("down", "kernel"): ("mlp", "embed"),
    ("q", "lora_down"): ("embed", "rank"),
    ("k", "lora_down"): ("embed", "rank"),
    ("v", "lora_down"): ("embed", "rank"),
    ("o", "lora_down"): ("heads", "head_dim", "rank"),
    ("gate", "lora_down"): ("embed", "rank"),
    ("up", "lora_down"): ("embed", "rank"),
    ("down", "lora_down"): ("mlp", "rank"),
    ("q", "lora_up"): ("rank", "heads", "head_dim"),
    ("k", "lora_up"): ("rank", "kv_heads", "head_dim"),
    ("v", "lora_up"): ("rank", "kv_heads", "head_dim"),
    ("o", "lora_up"): ("rank", "embed"),
    ("gate", "lora_up"): ("rank", "mlp"),
    ("up", "lora_up"): ("rank", "mlp"),
    ("down", "lora_up"): ("rank", "embed"),
    ("q", "kernel_scale"): ("heads", "head_dim"),
    ("k", "kernel_scale"): ("kv_heads", "head_dim"),
    ("v", "kernel_scale"): ("kv_heads", "head_dim"),
    ("o", "kernel_scale"): ("embed",),
    ("gate", "kernel_scale"): ("mlp",),
    ("up", "kernel_scale"): ("mlp",),
    ("down", "kernel_scale"): ("embed",),
    ("attn_norm", "scale"): ("norm",),
    ("mlp_norm", "scale"): ("norm",),
    ("q_norm", "scale"): ("head_dim",),
    ("k_norm", "scale"): ("head_dim",),
}
_OTHER_AXES = {
    "embed": ("vocab", "embed"),
    "head": ("embed", "vocab"),
    "final_norm": ("norm",),
}


class ShardingError(ConfigError):
    """Array that cannot be sharded as configured; the message names array, axis and mesh axes."""


def make_mesh(
    data: int = 1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """Return a mesh of all devices or of `devices`; one size may be -1 for the remaining devices.

    Args:
        data: size of the axis of data parallelism.
        fsdp: size of the axis of fully sharded data parallelism.
        tensor: size of the axis of tensor parallelism.
        devices: devices of the mesh; None for all.

    Raises:
        ShardingError: the product of the sizes is not the number of devices.
    """
    sizes = [data, fsdp, tensor]
    count = len(jax.devices() if devices is None else devices)
    if sizes.count(-1) == 1:
        product = int(np.prod([size for size in sizes if size != -1]))
        # A size of 0 must reach the error below instead of dividing by zero.
        sizes[sizes.index(-1)] = count // max(product, 1)
    if int(np.prod(sizes)) != count or min(sizes) < 1:
        request = ", ".join(
            f"{n}={s}" for n, s in zip(MESH_AXES, (data, fsdp, tensor), strict=True)
        )
        raise ShardingError(
            f"a mesh of {request} does not cover {count} devices: set sizes whose product is "
            f"{count}; one size may be -1"
        )
    # Auto: XLA propagates the shardings and inserts the communication.
    types = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types=types, devices=devices)


def num_row_shards(mesh: Mesh) -> int:
    """Return the number of devices that the rows of a batch are sharded over."""
    return int(np.prod([mesh.shape[axis] for axis in LOGICAL_AXIS_RULES["rows"]]))


def partition_spec(
    mesh: Mesh | AbstractMesh,
    axes: tuple[str, ...],
    shape: tuple[int, ...],
    *,
    rules: LogicalAxisRules = LOGICAL_AXIS_RULES,
    name: str = "array",
) -> PartitionSpec:
    """Return the partition spec of an array.

    Args:
        mesh: mesh to shard over.
        axes: logical axes of the array.
        shape: shape of the array.
        rules: table from logical axes to mesh axes.
        name: name of the array in error messages.

    Raises:
        ShardingError: two axes are sharded over one mesh axis, or an axis does not divide. An axis
            "kv_heads" that does not divide is replicated instead.
    """
    entries: list[tuple[str, ...] | None] = []
    axis_by_mesh_axis: dict[str, str] = {}
    for axis, size in zip(axes, shape, strict=True):
        # A mesh axis of size 1 shards nothing and may occur for several logical axes.
        mesh_axes = tuple(m for m in rules[axis] if mesh.shape[m] > 1)
        parts = int(np.prod([mesh.shape[m] for m in mesh_axes], dtype=int))
        if size % parts and axis == "kv_heads":
            mesh_axes, parts = (), 1
        if size % parts:
            raise ShardingError(
                f"{name}: axis {axis!r} of {size} does not divide by {parts} "
                f"({' x '.join(mesh_axes)}): change the mesh"
            )
        for mesh_axis in mesh_axes:
            if mesh_axis in axis_by_mesh_axis:
                both = f"{axis_by_mesh_axis[mesh_axis]!r} and {axis!r}"
                raise ShardingError(f"{name}: axes {both} are both sharded over {mesh_axis!r}")
            axis_by_mesh_axis[mesh_axis] = axis
        entries.append(mesh_axes or None)
    return PartitionSpec(*entries)


def param_shardings(params: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Return the shardings of params over a mesh.

    Args:
        params: params or their shapes.
        mesh: mesh to shard over.

    Raises:
        ShardingError: a param does not divide over the mesh.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _param_sharding(path, leaf.shape, mesh), params
    )


def default_shardings(params: Any, mesh: Mesh | None) -> Any:
    """Return the shardings of params over a mesh, or on the first local device without a mesh.

    Args:
        params: params or their shapes.
        mesh: mesh to shard over; None for a single device.

    Raises:
        ShardingError: a param does not divide over the mesh.
    """
    if mesh is not None:
        return param_shardings(params, mesh)
    device_sharding = SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda _: device_sharding, params)


def with_shardings(shapes: Any, shardings: Any) -> Any:
    """Return the shapes with shardings attached; `shardings` may be a prefix of their tree."""

    def attach(x: Any, leaf_sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=leaf_sharding)

    return jax.tree.map(attach, shapes, jax.tree.broadcast(shardings, shapes))


def bytes_per_device(arrays: Any) -> int:
    """Return the bytes that one device stores of arrays, or of shapes with shardings."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(arrays)
    )


def copy_to_each_process(params: Any, tensor: int = 1) -> Any:
    """Return params of a mesh over several processes as a copy that each process can read alone.

    One resharding puts the params on `tensor` devices of every process. No device stores more of
    them than an engine over as many devices does. With one process the params are returned
    unchanged. All processes must call this function together.

    Args:
        params: params sharded over all processes.
        tensor: number of devices per process that share a copy.

    Raises:
        ShardingError: the numbers of devices of the processes differ or do not divide by `tensor`.
    """
    if jax.process_count() == 1:
        return params
    devices_by_process: dict[int, list[Any]] = {}
    for device in jax.devices():
        devices_by_process.setdefault(device.process_index, []).append(device)
    counts = {len(devices) for devices in devices_by_process.values()}
    if len(counts) > 1 or counts.pop() % tensor:
        raise ShardingError(
            "all processes must have the same number of devices, a multiple of "
            f"tensor={tensor}: {devices_by_process}"
        )
    # 1. A mesh with groups of `tensor` adjacent devices, each group inside one process. No param is
    # sharded over "copies", so every group receives all params.
    rows = [devices_by_process[process] for process in sorted(devices_by_process)]
    grid = np.array(rows).reshape(-1, 1, 1, tensor)
    global_mesh = Mesh(grid, ("copies", *MESH_AXES), axis_types=(AxisType.Auto,) * 4)
    # 2. One SPMD identity moves all params; every process runs it.
    copies = jax.jit(lambda x: x, out_shardings=param_shardings(params, global_mesh))(params)
    # 3. The shards of the first group of this process become arrays on a mesh of its own. Its order
    # of devices is that of the group; `make_mesh` has another order on TPUs.
    group = np.array(devices_by_process[jax.process_index()][:tensor]).reshape(1, 1, tensor)
    local_mesh = Mesh(group, MESH_AXES, axis_types=(AxisType.Auto,) * 3)

    def take_local(leaf: Array, leaf_sharding: NamedSharding) -> Array:
        shards = {shard.device: shard.data for shard in leaf.addressable_shards}
        parts = [shards[device] for device in local_mesh.devices.flat]
        return jax.make_array_from_single_device_arrays(leaf.shape, leaf_sharding, parts)

    return jax.tree.map(take_local, copies, param_shardings(params, local_mesh))


def constrain(x: Array, axes: tuple[str, ...], mesh: Mesh | None) -> Array:
    """Constrain the sharding of `x` to its logical axes; return `x` unchanged without a mesh."""
    if mesh is None:
        return x
    return jax.lax.with_sharding_constraint(
        x, NamedSharding(mesh, partition_spec(mesh, axes, x.shape))
    )


def batch_sharding(mesh: Mesh, shape: tuple[int, ...], rows_axis: int = 0) -> NamedSharding:
    """Return the sharding of a batch array: sharded over rows, replicated elsewhere.

    Args:
        mesh: mesh to shard over.
        shape: shape of the array.
        rows_axis: axis of the rows.

    Raises:
        ShardingError: the rows do not divide over the mesh.
    """
    axes = tuple("rows" if i == rows_axis else "tokens" for i in range(len(shape)))
    return NamedSharding(mesh, partition_spec(mesh, axes, shape, name="batch"))


def shardings_like_params(
    tree: Any, params: Any, shardings: Any, default_sharding: Sharding
) -> Any:
    """Return the shardings of a tree with copies of the params, such as an optimizer state.

    Args:
        tree: tree to shard.
        params: params or their shapes.
        shardings: shardings of subtrees with the structure of `params`.
        default_sharding: sharding of all other leaves.
    """
    structure: Any = jax.tree.structure(params)

    def is_copy(node: Any) -> bool:
        return bool(jax.tree.structure(node) == structure)

    def select(node: Any) -> Any:
        return shardings if is_copy(node) else default_sharding

    return jax.tree.map(select, tree, is_leaf=is_copy)


def _param_sharding(
    path: tuple[Any, ...],
    shape: tuple[int, ...],
    mesh: Mesh | AbstractMesh,
) -> NamedSharding:
    names = tuple(part.key for part in path)
    if names[0] == "layers":
        axes: tuple[str, ...] = ("layers", *_LAYER_AXES[names[1], names[2]])
    else:
        axes = _OTHER_AXES[names[0]]
    return NamedSharding(mesh, partition_spec(mesh, axes, shape, name="/".join(names)))
