"""Matmuls with bfloat16 inputs and float32 accumulation, for float32 activations.

TPUs multiply float32 arrays like this by default. CPUs with AVX512-BF16 or AMX do it faster than in
float32, but XLA uses these instructions only for inputs that are bfloat16 and a result that is
float32. The matmuls of the backward pass therefore need explicit casts too.
"""

from __future__ import annotations

import functools
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

DimensionNumbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[Any, Any]]


def matmul(num_axes: int, x: Array, kernel: Array) -> Array:
    """Contract the last `num_axes` axes of `x` with the first of `kernel`.

    Args:
        num_axes: number of contracted axes.
        x: [batch..., in...], rounded to bfloat16.
        kernel: [in..., out...], rounded to bfloat16.

    Returns:
        float32 [batch..., out...]. The backward pass rounds its gradient to bfloat16, and returns
        gradients in the dtypes of `x` and `kernel`.
    """
    batch, outputs = x.shape[: x.ndim - num_axes], kernel.shape[num_axes:]
    inner = math.prod(kernel.shape[:num_axes])
    # XLA rejects bfloat16 matmuls with a float32 result of more than two axes on a CPU.
    out = _matmul(x.reshape(-1, inner), kernel.reshape(inner, -1))
    return out.reshape(*batch, *outputs)


def dot_general(
    x: Array,
    kernel: Array,
    dimension_numbers: DimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Compute `matmul` with the arguments of `jax.lax.dot_general`, for Linen's dense layers.

    Raises:
        ValueError: the contracted axes are not the last of `x` and the first of `kernel`, or there
            are batch axes.
    """
    (x_axes, kernel_axes), batch_axes = dimension_numbers
    count = len(x_axes)
    expected = (tuple(range(x.ndim - count, x.ndim)), tuple(range(count)))
    if (tuple(x_axes), tuple(kernel_axes)) != expected or any(batch_axes):
        raise ValueError(f"dimension_numbers={dimension_numbers} are not those of a dense layer")
    return matmul(count, x, kernel)


@functools.cache
def is_supported() -> bool:
    """Return whether the default backend can run `matmul`; a CPU may lack the instructions."""
    try:
        jax.jit(partial(matmul, 1))(jnp.zeros((16, 64)), jnp.zeros((64, 32))).block_until_ready()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@jax.custom_vjp
def _matmul(x: Array, kernel: Array) -> Array:
    return _forward(x, kernel)[0]


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    # The backward pass rounds x again: on a CPU, that is faster than storing the rounded copy.
    return _contract(x, kernel, 1, 0), (x, kernel)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, kernel = saved
    x_gradient = _contract(gradient, kernel, 1, 1).astype(x.dtype)
    # A CPU multiplies a narrow matrix by a wide one faster than the reverse.
    is_narrowing = kernel.shape[0] > kernel.shape[1]
    kernel_gradient = (
        _contract(gradient, x, 0, 0).T if is_narrowing else _contract(x, gradient, 0, 0)
    )
    return x_gradient, kernel_gradient.astype(kernel.dtype)


_matmul.defvjp(_forward, _backward)


def _contract(a: Array, b: Array, a_axis: int, b_axis: int) -> Array:
    return lax.dot_general(
        a.astype(jnp.bfloat16),
        b.astype(jnp.bfloat16),
        (((a_axis,), (b_axis,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
