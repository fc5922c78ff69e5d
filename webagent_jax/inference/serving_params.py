"""Layout of params that an engine decodes with fastest."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from webagent_jax.policy import ModelConfig, lora, sharding
from webagent_jax.policy.quantization import SCALE, is_quantized, quantize
from webagent_jax.policy.transformer import FUSED_PROJECTIONS, Params


def serving_params(config: ModelConfig, params: Params, *, fuse: bool) -> Params:
    """Return a copy of `params` in the layout of an engine.

    - Layers are unstacked, so no step slices the stack.
    - Params are cast once instead of in every layer, see `cast_params`.
    - Projections are quantized as in `config.quantization`.
    - Projections of one input are fused, with their adapters, see `_fuse_projections`.
    - A tied embedding gets a rounded copy as head if the matmuls round it.

    Args:
        config: architecture of the policy.
        params: params of the policy, also with adapters.
        fuse: whether to fuse projections; False on a mesh, which shards each of them.
    """

    params = quantize(params, config.quantization)
    if _needs_head(config, params):
        # Otherwise every dispatch would transpose and round the embedding.
        params = {**params, "head": params["embed"].T}
    params = cast_params(config, params)
    layers = [
        jax.tree.map(lambda stacked, i=i: stacked[i], params["layers"])
        for i in range(config.num_layers)
    ]
    return {**params, "layers": tuple(map(_fuse_projections, layers) if fuse else layers)}


def cast_params(config: ModelConfig, params: Params) -> Params:
    """Return a copy of `params` in the dtypes of an engine.

    These are the dtype of the activations, and `config.matmul_dtype` for weight matrices if the
    matmuls round them. The scales of norms are used in float32 and keep their dtype.
    """

    def cast(path: tuple[Any, ...], param: Array) -> Array:
        # jnp.copy and jnp.array copy even without a cast: the caller may donate its params.
        is_norm = path[-1].key in ("scale", "final_norm")
        keeps_dtype = is_norm or path[-1].key == SCALE or is_quantized(param)
        is_rounded = config.has_rounded_matmuls and path[-1].key in ("kernel", "head")
        dtype = config.matmul_dtype if is_rounded else config.dtype
        return jnp.copy(param) if keeps_dtype else jnp.array(param, dtype)

    return jax.tree_util.tree_map_with_path(cast, params)


def serving_shardings(config: ModelConfig, params: Params, target: Mesh | jax.Device) -> Any:
    """Return the shardings of `serving_params`.

    Args:
        config: architecture of the policy.
        params: params or their shapes.
        target: mesh to shard over like the params themselves, or the only device.
    """
    if not isinstance(target, Mesh):
        return SingleDeviceSharding(target)
    params = jax.eval_shape(partial(quantize, quantization=config.quantization), params)
    stacked = sharding.param_shardings(params, target)
    # Served layers are unstacked: drop the axis of layers, which is never sharded.
    layer = jax.tree.map(
        lambda leaf: NamedSharding(target, PartitionSpec(*leaf.spec[1:])), stacked["layers"]
    )
    shardings = {**stacked, "layers": (layer,) * config.num_layers}
    if _needs_head(config, params):
        spec = stacked["embed"].spec
        shardings["head"] = NamedSharding(target, PartitionSpec(*reversed(spec)))
    return shardings


def _needs_head(config: ModelConfig, params: Params) -> bool:
    return config.has_rounded_matmuls and "head" not in params


def _fuse_projections(layer: Params) -> Params:
    """Return the params of a layer with each group of `FUSED_PROJECTIONS` fused into one.

    One matmul replaces those of several projections and of their adapters' A. So a GPU starts fewer
    kernels, and a CPU decodes faster (docs/decisions.md, Fused projections).
    """
    layer = dict(layer)
    for fused, names in FUSED_PROJECTIONS.items():
        parts = {name: layer.pop(name) for name in names}
        layer[fused] = _fuse([_flatten_projection(name, part) for name, part in parts.items()])
    return layer


def _flatten_projection(name: str, projection: dict[str, Array]) -> dict[str, Array]:
    """Return the params of a projection with one input axis and one output axis."""
    kernel, inner = projection["kernel"], lora.num_input_axes(name)
    num_inputs = math.prod(kernel.shape[:inner])
    shapes = {
        "kernel": (num_inputs, -1),
        lora.DOWN: (num_inputs, -1),
        lora.UP: (projection[lora.UP].shape[0], -1) if lora.UP in projection else (),
    }
    # Biases and scales have output axes only.
    return {key: x.reshape(shapes.get(key, (-1,))) for key, x in projection.items()}


def _fuse(projections: list[dict[str, Array]]) -> dict[str, Array]:
    """Return one projection with the outputs of all, from their flattened params.

    Its kernel [in, out] ends with the columns of A, unless it is quantized: A keeps its precision.
    """
    kernel = jnp.concatenate([p["kernel"] for p in projections], axis=1)
    fused = {
        key: jnp.concatenate([p[key] for p in projections])
        for key in ("bias", SCALE)
        if key in projections[0]
    }
    if adapted := [p for p in projections if lora.DOWN in p]:
        down = jnp.concatenate([p[lora.DOWN] for p in adapted], axis=1)
        fused[lora.UP] = _block_diagonal_up(projections, adapted[0][lora.UP].dtype)
        if is_quantized(kernel):
            fused[lora.DOWN] = down
        else:
            kernel = jnp.concatenate([kernel, down.astype(kernel.dtype)], axis=1)
            if "bias" in fused:
                fused["bias"] = jnp.pad(fused["bias"], (0, down.shape[1]))
    return {**fused, "kernel": kernel}


def _block_diagonal_up(projections: list[dict[str, Array]], dtype: Any) -> Array:
    """Return B [sum of ranks, sum of outputs]: an output reads the adapter of its projection."""
    blocks = []
    for projection in projections:
        # A projection without an adapter has one of rank 0.
        no_adapter = jnp.zeros((0, projection["kernel"].shape[1]), dtype)
        blocks.append(projection.get(lora.UP, no_adapter))
    return jax.scipy.linalg.block_diag(*blocks)
