"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): a few params are trained, the base stays.

A projection with the kernel W computes x W + (alpha / rank) x A B, A [in, rank] and B [rank, out].
The adapters are a tree of their own, {"layers": {projection: {A, B}}}, stacked over layers as the
kernels are: it is what the optimizer sees. Attached to the params they work wherever params do;
without them the same params are the reference policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

DOWN, UP = "lora_down", "lora_up"  # A and B
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")

Adapters = Any


class Base(NamedTuple):
    """What adapters stand on; it is not trained."""

    params: Any
    scale: float  # of the adapters: alpha / rank


def init(params: Any, key: Array, *, rank: int, projections: Sequence[str]) -> Adapters:
    """Fresh adapters, which change nothing yet: A is drawn, B is 0.

    Args:
        params: of the base; shapes will do.

    Raises:
        ValueError: `rank` is below 1, or there is no such projection.
    """
    unknown = [name for name in projections if name not in PROJECTIONS]
    if rank < 1 or unknown or not projections:
        raise ValueError(
            f"rank={rank} of projections {list(projections)}: the rank must be 1 or more, the "
            f"projections some of {', '.join(PROJECTIONS)}"
        )
    adapters = {}
    for name, drawn in zip(projections, jax.random.split(key, len(projections)), strict=True):
        layers, *sizes = params["layers"][name]["kernel"].shape
        inner = _inner_axes(name)
        down = (layers, *sizes[:inner], rank)
        deviation = math.prod(sizes[:inner]) ** -0.5
        adapters[name] = {
            DOWN: deviation * jax.random.normal(drawn, down),
            UP: jnp.zeros((layers, rank, *sizes[inner:])),
        }
    return {"layers": adapters}


def abstract(params: Any, rank: int, projections: Sequence[str]) -> Adapters:
    """Shapes of adapters. Raises ValueError as `init` does."""
    make = partial(init, params, rank=rank, projections=projections)
    return jax.eval_shape(make, jax.random.key(0))


def whole(base: Base | None, trained: Any) -> Any:
    """All params of a model of which `trained` is trained: adapters on a base, or itself all."""
    if base is None:
        return trained
    layers = dict(base.params["layers"])
    for name, adapter in trained["layers"].items():
        layers[name] = {**layers[name], DOWN: adapter[DOWN], UP: base.scale * adapter[UP]}
    return {**base.params, "layers": layers}


def merge(params: Any) -> Any:
    """Params with adapters inside as plain ones of the same function: W + A B."""
    layers = {}
    for name, part in params["layers"].items():
        layers[name] = {key: x for key, x in part.items() if key not in (DOWN, UP)}
        if DOWN in part:
            product = jax.vmap(lambda down, up: jnp.tensordot(down, up, 1))
            layers[name]["kernel"] = part["kernel"] + product(part[DOWN], part[UP])
    return {**params, "layers": layers}


def _inner_axes(projection: str) -> int:
    """Axes of a kernel that are summed over: the output projection takes heads."""
    return 2 if projection == "o" else 1
