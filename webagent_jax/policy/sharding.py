"""Sharding of arrays over a mesh by one table from logical axes to mesh axes.

Logical axes ("embed", "heads", ...) describe every array of the policy. The table maps each of them
to the mesh axes that shard it. It determines the shardings of params, optimizer moments, batches
and KV caches; XLA (GSPMD) inserts the communication.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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

_GATHERED_BYTES = 2**28  # bytes of a block of `gather_to_first_process`, if a layer is not larger


class ShardingError(ConfigError):
    """Array that cannot be sharded as configured; the message names array, axis and mesh axes."""


def make_mesh(
    data: int = 1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """Return a mesh of all devices or of `devices`; one size may be -1 for the remaining devices.

    Each process has consecutive row shards, because it packs consecutive rows of a batch.

    Args:
        data: size of the axis of data parallelism.
        fsdp: size of the axis of fully sharded data parallelism.
        tensor: size of the axis of tensor parallelism.
        devices: devices of the mesh; None for all.

    Raises:
        ShardingError: the product of the sizes is not the number of devices.
    """
    sizes = [data, fsdp, tensor]
    devices = jax.devices() if devices is None else devices
    count = len(devices)
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
    processes = _devices_by_process(devices)
    if len(processes) == 1:
        # The order of JAX follows the links between TPUs; it has none for some shapes. Over several
        # processes, it would mix their devices.
        with suppress(NotImplementedError):
            return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types=types, devices=devices)
    return Mesh(np.concatenate(processes).reshape(sizes), MESH_AXES, axis_types=types)


def engine_mesh(tensor: int) -> Mesh | None:
    """Return a mesh over `tensor` devices of this process; None for a single device.

    Raises:
        ShardingError: this process has fewer devices.
    """
    if tensor == 1:
        return None
    devices = jax.local_devices()
    if tensor > len(devices):
        raise ShardingError(
            f"engine.tensor_parallel_size={tensor} is more than the {len(devices)} devices of "
            "this process"
        )
    return make_mesh(tensor=tensor, devices=devices[:tensor])


def check_row_shards(mesh: Mesh) -> None:
    """Check that each process has the same number of complete row shards.

    Raises:
        ShardingError: the devices of a row shard belong to several processes, or the numbers of
            devices of the processes differ.
    """
    tensor = mesh.shape["tensor"]
    counts = Counter(device.process_index for device in mesh.devices.flat)
    if len(set(counts.values())) > 1 or min(counts.values()) % tensor:
        raise ShardingError(
            f"mesh.tensor={tensor} must divide the number of devices of each process, which packs "
            "its own rows, and all processes must have the same number of devices, not "
            f"{sorted(counts.values())}: lower --config.mesh.tensor"
        )


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

    A resharding of each param puts it on `tensor` devices of every process. No device stores more
    of the params than an engine over as many devices does. With one process the params are returned
    unchanged. All processes must call this function together.

    Args:
        params: params sharded over all processes.
        tensor: number of devices per process that share a copy.

    Raises:
        ShardingError: the numbers of devices of the processes differ or do not divide by `tensor`.
    """
    if jax.process_count() == 1:
        return params
    processes = _devices_by_process(jax.devices())
    counts = {len(devices) for devices in processes}
    if len(counts) > 1 or counts.pop() % tensor:
        raise ShardingError(
            "all processes must have the same number of devices, a multiple of "
            f"tensor={tensor}: {processes}"
        )
    # 1. A mesh with groups of `tensor` adjacent devices, each group inside one process. No param is
    # sharded over "copies", so every group receives all params. Its order is that of `make_mesh`.
    grid = np.concatenate(processes).reshape(-1, 1, 1, tensor)
    global_mesh = Mesh(grid, ("copies", *MESH_AXES), axis_types=(AxisType.Auto,) * 4)
    # 2. The shards of the first group of this process become arrays on a mesh of its own. Its order
    # of devices is that of the group; `make_mesh` has another order on TPUs.
    group = np.array(processes[jax.process_index()][:tensor]).reshape(1, 1, tensor)
    local_mesh = Mesh(group, MESH_AXES, axis_types=(AxisType.Auto,) * 3)

    def copy(
        path: tuple[Any, ...], leaf: Array, target: NamedSharding, local_target: NamedSharding
    ) -> Array:
        if path[0].key == "layers":
            copies = _layer_resharding(target)(leaf)
        else:
            copies = jax.device_put(leaf, target)
        shards = {shard.device: shard.data for shard in copies.addressable_shards}
        parts = [shards[device] for device in local_mesh.devices.flat]
        return jax.make_array_from_single_device_arrays(leaf.shape, local_target, parts)

    return jax.tree_util.tree_map_with_path(
        copy, params, param_shardings(params, global_mesh), param_shardings(params, local_mesh)
    )


def gather_to_first_process(params: Any) -> Any:
    """Return params of a mesh over several processes as NumPy arrays on process 0.

    Devices receive a small block of a param at a time, because all params may not fit a device. The
    other processes receive None for each param. With one process the params are returned unchanged.
    All processes must call this function together.

    Args:
        params: params sharded over all processes.
    """
    if jax.process_count() == 1:
        return params
    is_first = jax.process_index() == 0
    grid = np.concatenate(_devices_by_process(jax.devices()))
    replicated = NamedSharding(Mesh(grid, "copies", axis_types=(AxisType.Auto,)), PartitionSpec())
    take = jax.jit(
        jax.lax.dynamic_slice_in_dim,
        static_argnames=("slice_size", "axis"),
        out_shardings=replicated,
    )

    def fetch(leaf: Array, start: int, size: int, axis: int) -> Any:
        block = take(leaf, start, slice_size=size, axis=axis)
        # Every process waits, so that the blocks on a device do not add up.
        block.block_until_ready()
        return np.asarray(block) if is_first else None

    def gather(path: tuple[Any, ...], leaf: Array) -> Any:
        # The axis of layers is never sharded, and that of the vocabulary only over "tensor".
        axis = 0 if path[0].key == "layers" else int(np.argmax(leaf.shape))
        length = leaf.shape[axis]
        size = min(length, max(1, _GATHERED_BYTES * length // leaf.nbytes))
        blocks = [
            fetch(leaf, start, min(size, length - start), axis) for start in range(0, length, size)
        ]
        return np.concatenate(blocks, axis) if is_first else None

    return jax.tree_util.tree_map_with_path(gather, params)


@functools.cache
def _layer_resharding(target: NamedSharding) -> Callable[[Array], Array]:
    """Return a compiled function that reshards a stack of layers, one layer after another."""
    layer_sharding = NamedSharding(target.mesh, PartitionSpec(*target.spec[1:]))

    def reshard(stack: Array) -> Array:
        # For some shardings, XLA replicates the array on every device: a layer, not the stack.
        return jax.lax.map(lambda x: jax.lax.with_sharding_constraint(x, layer_sharding), stack)

    return jax.jit(reshard, out_shardings=target)


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


def _devices_by_process(devices: Sequence[Any]) -> list[list[Any]]:
    """Return the devices of each process in ascending order, of processes and of ids."""
    groups: dict[int, list[Any]] = {}
    for device in sorted(devices, key=lambda d: (d.process_index, d.id)):
        groups.setdefault(device.process_index, []).append(device)
    return list(groups.values())
