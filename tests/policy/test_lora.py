"""Adapters: they start as nothing, work as the merged kernels do, and are all that is trained."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.policy import lora

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48)
PARAMS = policy.init(CONFIG, jax.random.key(0))
TOKENS = np.random.default_rng(0).integers(0, 61, (2, 20))


def adapters(projections=lora.PROJECTIONS, *, up=0.0):
    made = lora.init(PARAMS, jax.random.key(1), rank=3, projections=projections)
    drawn = np.random.default_rng(2)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: up * drawn.normal(size=x.shape) if path[-1].key == lora.UP else x, made
    )


def logits(params):
    return policy.logits(CONFIG, params, TOKENS)


def test_fresh_adapters_change_nothing():
    whole = lora.attach(lora.FrozenBase(PARAMS, 2.0), adapters())
    np.testing.assert_array_equal(logits(whole), logits(PARAMS))


@pytest.mark.parametrize("projections", [*((name,) for name in lora.PROJECTIONS), ("q", "o")])
def test_merged_params_are_the_same_function(projections):
    whole = lora.attach(lora.FrozenBase(PARAMS, 2.0), adapters(projections, up=0.1))
    merged = lora.merge(whole)
    assert jax.tree.structure(merged) == jax.tree.structure(PARAMS)
    found = logits(whole)
    assert jnp.max(jnp.abs(found - logits(PARAMS))) > 1e-3
    np.testing.assert_allclose(found, logits(merged), atol=2e-6)


def test_a_twice_as_large_scale_is_twice_the_difference():
    def added(scale):
        whole = lora.merge(lora.attach(lora.FrozenBase(PARAMS, scale), adapters(("up",), up=0.1)))
        return whole["layers"]["up"]["kernel"] - PARAMS["layers"]["up"]["kernel"]

    np.testing.assert_allclose(added(2.0), 2 * added(1.0), atol=1e-7)


def test_params_without_adapters_are_merged_already():
    jax.tree.map(np.testing.assert_array_equal, lora.merge(PARAMS), PARAMS)


@pytest.mark.parametrize(("rank", "projections"), [(0, ("q",)), (2, ()), (2, ("q", "embed"))])
def test_impossible_adapters_are_refused(rank, projections):
    with pytest.raises(ValueError, match="some of q, k, v"):
        lora.init(PARAMS, jax.random.key(0), rank=rank, projections=projections)
