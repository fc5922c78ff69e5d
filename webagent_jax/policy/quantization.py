"""Weight-only quantization of the projections of a served policy.

A kernel W becomes Q with one symmetric scale s per output channel, W ≈ Q s. Matmuls run in the
dtype of the activations, so decoding reads half or a quarter of the bytes, and the products with Q
are exact up to rounding: int8 and float8 values are bfloat16 values. Embedding, head and norms stay
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from webagent_jax.config import PROJECTIONS, Quantization
from webagent_jax.policy import lora

SCALE = "kernel_scale"  # key of s, float32 [layers, out...]

_DTYPES: Mapping[str, Any] = {"int8": jnp.int8, "fp8": jnp.float8_e4m3fn}


def quantize(params: Any, quantization: Quantization) -> Any:
    """Return the params with quantized projections; "none" returns them unchanged.

    Biases are divided by the scales, because a projection multiplies its sum by them. Adapters
    (`lora`) keep their precision.

    Args:
        params: params of the policy, also with adapters, stacked over layers.
        quantization: dtype of the kernels.
    """
    if quantization == "none":
        return params
    layers = dict(params["layers"])
    for name in PROJECTIONS:
        layers[name] = _quantize_projection(name, layers[name], _DTYPES[quantization])
    return {**params, "layers": layers}


def is_quantized(param: Any) -> bool:
    """Return whether a param or its shape has a dtype of `quantize`."""
    return any(param.dtype == dtype for dtype in _DTYPES.values())


def _quantize_projection(name: str, projection: Mapping[str, Array], dtype: Any) -> dict[str, Any]:
    kernel = projection["kernel"].astype(jnp.float32)
    # The first axis is that of the layers.
    input_axes = tuple(range(1, 1 + lora.num_input_axes(name)))
    is_integer = jnp.issubdtype(dtype, jnp.integer)
    limit = float(jnp.iinfo(dtype).max if is_integer else jnp.finfo(dtype).max)
    largest = jnp.max(jnp.abs(kernel), axis=input_axes)
    # A column of zeros needs any scale but 0.
    scale = jnp.where(largest > 0, largest / limit, 1.0)
    # Rounding may exceed the limit by one unit, which does not exist in `dtype`.
    scaled = jnp.clip(kernel / jnp.expand_dims(scale, input_axes), -limit, limit)
    quantized = (jnp.round(scaled) if is_integer else scaled).astype(dtype)
    others = {key: x for key, x in projection.items() if key != "kernel"}
    if "bias" in others:
        others["bias"] = others["bias"] / scale
    return {**others, "kernel": quantized, SCALE: scale}
