"""Where arrays live on a mesh: one table from logical axes to mesh axes, and what follows from it.

Every array of the policy is described by logical axes ("embed", "heads", ...). The table says which
mesh axes each of them is cut over; params, moments, batches and caches are all placed by it, and
XLA (GSPMD) inserts the communication.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from webagent_jax.policy.transformer import ModelConfig, Params, init

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
    "tokens": (),
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


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """A mesh over all devices; one of the sizes may be -1: what is left.

    Raises ShardingError when the sizes do not make the number of devices.
    """
    sizes = [data, fsdp, tensor]
    devices = len(jax.devices())
    if sizes.count(-1) == 1:
        known = int(np.prod([size for size in sizes if size != -1]))
        sizes[sizes.index(-1)] = devices // known
    if int(np.prod(sizes)) != devices or min(sizes) < 1:
        asked = ", ".join(f"{n}={s}" for n, s in zip(MESH_AXES, (data, fsdp, tensor), strict=True))
        raise ShardingError(f"a mesh of {asked} does not cover {devices} devices")
    return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types=(AxisType.Auto,) * len(sizes))


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


def param_shardings(config: ModelConfig, mesh: Mesh, rules: Rules = RULES) -> Any:
    """A tree like the params, of NamedSharding. Raises ShardingError."""
    shapes = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _param_sharding(path, leaf.shape, mesh, rules), shapes
    )


def batch_sharding(
    mesh: Mesh, shape: tuple[int, ...], rows_axis: int = 0, rules: Rules = RULES
) -> NamedSharding:
    """Of an array of a batch: cut along its rows, whole along everything else.

    Raises ShardingError when the rows do not divide.
    """
    axes = tuple("rows" if i == rows_axis else "tokens" for i in range(len(shape)))
    return NamedSharding(mesh, spec(mesh, axes, shape, rules=rules, name="batch"))


def init_sharded(config: ModelConfig, key: jax.Array, mesh: Mesh) -> Params:
    """`init` straight into shards: no device ever holds a whole large param."""
    shardings = param_shardings(config, mesh)
    params: Params = jax.jit(lambda key: init(config, key), out_shardings=shardings)(key)
    return params


def like_params(tree: Any, params: Any, shardings: Any, mesh: Mesh) -> Any:
    """Shardings for a tree that holds copies of the params, as optimizer states do.

    A subtree that has the params' structure is placed as they are; every other leaf is replicated.
    """
    structure: Any = jax.tree.structure(params)

    def is_copy(node: Any) -> bool:
        return bool(jax.tree.structure(node) == structure)

    def place(node: Any) -> Any:
        return shardings if is_copy(node) else NamedSharding(mesh, PartitionSpec())

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
