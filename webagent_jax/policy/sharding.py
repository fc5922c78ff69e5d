"""Where arrays live on a mesh: one table from logical axes to mesh axes, and what follows from it.

Every array of the policy is described by logical axes ("embed", "heads", ...). The table says which
mesh axes each of them is cut over; params, moments, batches and caches are all placed by it, and
XLA (GSPMD) inserts the communication.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

MESH_AXES = ("data", "fsdp", "tensor")

Rules = Mapping[str, tuple[str, ...]]

RULES: Rules = {
    "rows": ("data", "fsdp"),  # of a batch
    "vocab": ("tensor",),
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "layers": (),
    "head_dim": (),
    "norm": (),
    "rank": (),  # of adapters
    "tokens": (),
    "pages": (),  # of the sampling engine's cache
    "hidden": (),  # of activations
}

# By the names on the path to a param, the last of which is "kernel", "bias" or "scale".
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


class ShardingError(ValueError):
    """An array cannot be placed as asked for. The message names array, axis and mesh axes."""


def make_mesh(
    data: int = 1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """A mesh over all devices, or those given; one of the sizes may be -1: what is left.

    Raises ShardingError when the sizes do not make the number of devices.
    """
    sizes = [data, fsdp, tensor]
    count = len(jax.devices() if devices is None else devices)
    if sizes.count(-1) == 1:
        known = int(np.prod([size for size in sizes if size != -1]))
        sizes[sizes.index(-1)] = count // max(known, 1)
    if int(np.prod(sizes)) != count or min(sizes) < 1:
        asked = ", ".join(f"{n}={s}" for n, s in zip(MESH_AXES, (data, fsdp, tensor), strict=True))
        raise ShardingError(
            f"a mesh of {asked} does not cover {count} devices: the product must be {count}, "
            "and one size may be -1"
        )
    types = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types=types, devices=devices)


def rows_apart(mesh: Mesh) -> int:
    """Over how many devices the rows of a batch are cut."""
    return int(np.prod([mesh.shape[axis] for axis in RULES["rows"]]))


def spec(
    mesh: Mesh,
    axes: tuple[str, ...],
    shape: tuple[int, ...],
    *,
    rules: Rules = RULES,
    name: str = "array",
) -> PartitionSpec:
    """How an array with these logical axes and this shape is cut.

    Raises:
        ShardingError: two of its axes are cut over one mesh axis, or an axis does not divide. Only
            "kv_heads" may be too few: they are then kept whole on every device.
    """
    cut: list[tuple[str, ...] | None] = []
    taken: dict[str, str] = {}
    for axis, size in zip(axes, shape, strict=True):
        over = tuple(m for m in rules[axis] if mesh.shape[m] > 1)
        parts = int(np.prod([mesh.shape[m] for m in over], dtype=int))
        if size % parts and axis == "kv_heads":
            over, parts = (), 1
        if size % parts:
            raise ShardingError(
                f"{name}: axis {axis!r} of {size} does not divide by {parts} ({' x '.join(over)})"
            )
        for mesh_axis in over:
            if mesh_axis in taken:
                both = f"{taken[mesh_axis]!r} and {axis!r}"
                raise ShardingError(f"{name}: axes {both} are both cut over {mesh_axis!r}")
            taken[mesh_axis] = axis
        cut.append(over or None)
    return PartitionSpec(*cut)


def param_shardings(params: Any, mesh: Mesh, rules: Rules = RULES) -> Any:
    """A tree of NamedSharding like `params`, which may be shapes alone. Raises ShardingError."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _param_sharding(path, leaf.shape, mesh, rules), params
    )


def placement(params: Any, mesh: Mesh | None) -> Any:
    """As `param_shardings`, or all on the first local device where there is no mesh."""
    if mesh is not None:
        return param_shardings(params, mesh)
    one = SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda _: one, params)


def placed(shapes: Any, shardings: Any) -> Any:
    """The shapes, each with the place where its array lies or is to go."""
    return jax.tree.map(
        lambda x, at: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at), shapes, shardings
    )


def device_bytes(placed: Any) -> int:
    """What one device holds of arrays, or shapes with their places."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(placed)
    )


def on_host(params: Any, tensor: int = 1) -> Any:
    """Params of a mesh over several hosts, as each host can read them by itself.

    One resharding: cut over `tensor` devices of every host, so that no device holds more of them
    than an engine over as many devices will. With one host they stay as they are. All hosts must
    call this together.

    Raises ShardingError when the devices of a host do not divide by `tensor`.
    """
    if jax.process_count() == 1:
        return params
    by_host: dict[int, list[Any]] = {}
    for device in jax.devices():
        by_host.setdefault(device.process_index, []).append(device)
    each = {len(devices) for devices in by_host.values()}
    if len(each) > 1 or each.pop() % tensor:
        raise ShardingError(
            f"the hosts have not all so many devices, in parts of {tensor}: {by_host}"
        )
    grid = np.array([by_host[host] for host in sorted(by_host)]).reshape(-1, 1, 1, tensor)
    everywhere = Mesh(grid, ("copies", *MESH_AXES), axis_types=(AxisType.Auto,) * 4)
    spread = jax.jit(lambda x: x, out_shardings=param_shardings(params, everywhere))(params)
    here = make_mesh(tensor=tensor, devices=jax.local_devices()[:tensor])

    def taken(leaf: Array, at: NamedSharding) -> Array:
        shards = {shard.device: shard.data for shard in leaf.addressable_shards}
        parts = [shards[device] for device in here.devices.flat]
        return jax.make_array_from_single_device_arrays(leaf.shape, at, parts)

    return jax.tree.map(taken, spread, param_shardings(params, here))


def constrain(x: Array, axes: tuple[str, ...], mesh: Mesh | None) -> Array:
    """`x`, told to XLA to be cut along these logical axes; as it is without a mesh."""
    if mesh is None:
        return x
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec(mesh, axes, x.shape)))


def batch_sharding(
    mesh: Mesh, shape: tuple[int, ...], rows_axis: int = 0, rules: Rules = RULES
) -> NamedSharding:
    """Of an array of a batch: cut along its rows, whole along everything else.

    Raises ShardingError when the rows do not divide.
    """
    axes = tuple("rows" if i == rows_axis else "tokens" for i in range(len(shape)))
    return NamedSharding(mesh, spec(mesh, axes, shape, rules=rules, name="batch"))


def like_params(tree: Any, params: Any, shardings: Any, other: Sharding) -> Any:
    """Shardings for a tree that holds copies of the params, as optimizer states do.

    A subtree that has the params' structure is placed by `shardings`, every other leaf by `other`.
    """
    structure: Any = jax.tree.structure(params)

    def is_copy(node: Any) -> bool:
        return bool(jax.tree.structure(node) == structure)

    def place(node: Any) -> Any:
        return shardings if is_copy(node) else other

    return jax.tree.map(place, tree, is_leaf=is_copy)


def _param_sharding(
    path: tuple[Any, ...], shape: tuple[int, ...], mesh: Mesh, rules: Rules
) -> NamedSharding:
    names = tuple(part.key for part in path)
    if names[0] == "layers":
        axes: tuple[str, ...] = ("layers", *_LAYER_AXES[names[1], names[2]])
    else:
        axes = _OTHER_AXES[names[0]]
    return NamedSharding(mesh, spec(mesh, axes, shape, rules=rules, name="/".join(names)))
