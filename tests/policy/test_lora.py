"""Tests of LoRA adapters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.adapters import merge_adapters
from webagent_jax import policy
from webagent_jax.policy import lora

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48)
PARAMS = policy.init(CONFIG, jax.random.key(0))
TOKENS = np.random.default_rng(0).integers(0, 61, (2, 20))


def make_adapters(projections=lora.PROJECTIONS, *, up=0.0):
    adapters = lora.init(PARAMS, jax.random.key(1), rank=3, projections=projections)
    rng = np.random.default_rng(2)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: up * rng.normal(size=x.shape) if path[-1].key == lora.UP else x, adapters
    )


def compute_logits(params):
    return policy.logits(CONFIG, params, TOKENS)


def test_initial_adapters_do_not_change_logits():
    params = lora.attach(lora.FrozenBase(PARAMS, 2.0), make_adapters())
    np.testing.assert_array_equal(compute_logits(params), compute_logits(PARAMS))


@pytest.mark.parametrize("projections", [*((name,) for name in lora.PROJECTIONS), ("q", "o")])
def test_merge_preserves_logits(projections):
    params = lora.attach(lora.FrozenBase(PARAMS, 2.0), make_adapters(projections, up=0.1))
    merged_params = merge_adapters(params)
    assert jax.tree.structure(merged_params) == jax.tree.structure(PARAMS)
    actual = compute_logits(params)
    assert jnp.max(jnp.abs(actual - compute_logits(PARAMS))) > 1e-3
    np.testing.assert_allclose(actual, compute_logits(merged_params), atol=2e-6)


def test_kernel_difference_is_proportional_to_scale():
    def kernel_difference(scale):
        params = merge_adapters(
            lora.attach(lora.FrozenBase(PARAMS, scale), make_adapters(("up",), up=0.1))
        )
        return params["layers"]["up"]["kernel"] - PARAMS["layers"]["up"]["kernel"]

    np.testing.assert_allclose(kernel_difference(2.0), 2 * kernel_difference(1.0), atol=1e-7)


@pytest.mark.parametrize(("rank", "projections"), [(0, ("q",)), (2, ()), (2, ("q", "embed"))])
def test_invalid_adapters_are_rejected(rank, projections):
    with pytest.raises(ValueError, match="some of q, k, v"):
        lora.init(PARAMS, jax.random.key(0), rank=rank, projections=projections)
