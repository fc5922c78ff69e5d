"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685) of a frozen base policy.

A projection with the kernel W computes x W + (alpha / rank) x A B, A [in, rank] and B [rank, out].
The adapters are a separate tree, {"layers": {projection: {A, B}}}, stacked over layers like the
kernels; the optimizer updates only this tree. `attach` adds the adapters to the params, for use
wherever params are. The base alone is the reference policy of new adapters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.config import PROJECTIONS

DOWN, UP = "lora_down", "lora_up"  # keys of A and B

Adapters = Any

NO_ADAPTERS: Adapters = {"layers": {}}
"""Adapters of no projection: `attach` returns the base itself."""


class FrozenBase(NamedTuple):
    """Frozen base parameters that the adapters modify."""

    params: Any  # params of the base policy
    scale: float  # factor of the adapters, alpha / rank


def init(params: Any, key: Array, *, rank: int, projections: Sequence[str]) -> Adapters:
    """Return initial adapters, which do not change the policy: A is random, B is 0.

    Args:
        params: params of the base or their shapes.
        key: random key, consumed.
        rank: rank of the adapters.
        projections: projections to adapt, from `PROJECTIONS`.

    Raises:
        ValueError: `rank` is below 1, or a projection is unknown or missing.
    """
    unknown = [name for name in projections if name not in PROJECTIONS]
    if rank < 1 or unknown or not projections:
        raise ValueError(
            f"rank={rank} of projections {list(projections)}: the rank must be 1 or more, the "
            f"projections some of {', '.join(PROJECTIONS)}"
        )
    adapters = {}
    for name, name_key in zip(projections, jax.random.split(key, len(projections)), strict=True):
        layers, *sizes = params["layers"][name]["kernel"].shape
        inner = num_input_axes(name)
        down_shape = (layers, *sizes[:inner], rank)
        # Variance 1 / fan-in: x A has the variance of x.
        deviation = math.prod(sizes[:inner]) ** -0.5
        adapters[name] = {
            DOWN: deviation * jax.random.normal(name_key, down_shape),
            UP: jnp.zeros((layers, rank, *sizes[inner:])),
        }
    return {"layers": adapters}


def abstract_adapters(params: Any, rank: int, projections: Sequence[str]) -> Adapters:
    """Return the shapes of adapters.

    Args:
        params: params of the base or their shapes.
        rank: rank of the adapters.
        projections: projections to adapt, from `PROJECTIONS`.

    Raises:
        ValueError: `rank` is below 1, or a projection is unknown or missing.
    """
    make = partial(init, params, rank=rank, projections=projections)
    return jax.eval_shape(make, jax.random.key(0))


def count_params(params: Any, rank: int, projections: Sequence[str]) -> int:
    """Return the number of scalars in the adapters of params, or of their shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract_adapters(params, rank, projections)))


def attach(base: FrozenBase | None, trainable: Any) -> Any:
    """Return the params with the trained adapters attached; `trainable` itself without a base."""
    if base is None:
        return trainable
    layers = dict(base.params["layers"])
    for name, adapter in trainable["layers"].items():
        # New dicts, so the base stays unchanged. B includes the scale, so `merged_kernel` has none.
        layers[name] = {**layers[name], DOWN: adapter[DOWN], UP: base.scale * adapter[UP]}
    return {**base.params, "layers": layers}


def merged_kernel(projection: Mapping[str, Array]) -> Array:
    """Return the kernel of a projection with its adapter merged: W + A B, for all layers."""
    # vmap over the layers; tensordot contracts the rank.
    product = jax.vmap(lambda down, up: jnp.tensordot(down, up, 1))
    return projection["kernel"] + product(projection[DOWN], projection[UP])


def num_input_axes(projection: str) -> int:
    """Return the number of input axes of a kernel; the output projection has two."""
    return 2 if projection == "o" else 1
