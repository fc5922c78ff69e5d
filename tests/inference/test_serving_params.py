"""Tests of the layout of params in an engine."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.inference.serving_params import cast_params, serving_params
from webagent_jax.policy import ModelConfig, lora
from webagent_jax.policy.transformer import FUSED_PROJECTIONS, apply_block, rope_angles

CONFIG = ModelConfig(
    vocab_size=64, d_model=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, d_ff=48
)


def make_params(config: ModelConfig, adapted: tuple[str, ...]):
    params = jax.jit(partial(policy.init, config))(jax.random.key(0))
    # Initial biases are 0 and would hide an error.
    params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(jax.random.key(1), x.shape), params)
    if not adapted:
        return params
    adapters = lora.init(params, jax.random.key(2), rank=4, projections=adapted)
    adapters = jax.tree.map(lambda x: x + 0.1, adapters)  # B is 0 initially
    return lora.attach(lora.FrozenBase(params, 0.5), adapters)


def run_layer(config: ModelConfig, layer) -> np.ndarray:
    x = jax.random.normal(jax.random.key(3), (2, 3, config.d_model))
    angles = rope_angles(config, jnp.broadcast_to(jnp.arange(3), (2, 3)))

    def attend(q, k, v):
        return q * jnp.repeat(k, 2, axis=2) + jnp.repeat(v, 2, axis=2), None

    run = jax.jit(lambda layer: apply_block(config, layer, x, angles, attend)[0])
    return np.asarray(run(layer))


@pytest.mark.parametrize(("qkv_bias", "quantization"), [(True, "none"), (False, "int8")])
@pytest.mark.parametrize("adapted", [(), ("q", "v"), ("up", "down"), lora.PROJECTIONS])
def test_fused_projections_compute_the_same_layer(qkv_bias, quantization, adapted):
    config = dataclasses.replace(CONFIG, qkv_bias=qkv_bias, quantization=quantization)
    params = make_params(config, adapted)
    separate, fused = (
        jax.jit(partial(serving_params, config, fuse=fuse))(params) for fuse in (False, True)
    )
    assert not set(separate["layers"][0]) & set(FUSED_PROJECTIONS)
    assert not set(fused["layers"][0]) & set(lora.PROJECTIONS)
    for separate_layer, fused_layer in zip(separate["layers"], fused["layers"], strict=True):
        np.testing.assert_allclose(
            run_layer(config, fused_layer), run_layer(config, separate_layer), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"matmul_dtype": "bfloat16"}])
def test_params_that_are_cast_before_have_the_same_layout(options):
    """Several processes exchange params in the dtypes of the engine."""
    config = dataclasses.replace(CONFIG, **options)
    params = make_params(config, ("q", "up"))
    cast = cast_params(config, params)
    sizes = [sum(leaf.nbytes for leaf in jax.tree.leaves(tree)) for tree in (cast, params)]
    assert sizes[0] < 0.75 * sizes[1]
    jax.tree.map(
        np.testing.assert_array_equal,
        serving_params(config, cast, fuse=True),
        serving_params(config, params, fuse=True),
    )


def test_kernel_contains_the_adapter_unless_quantized():
    params = make_params(CONFIG, lora.PROJECTIONS)
    qkv = serving_params(CONFIG, params, fuse=True)["layers"][0]["qkv"]
    # 4 + 2 + 2 heads of 8, and three adapters of rank 4.
    assert qkv["kernel"].shape == (32, 64 + 12) and qkv["bias"].shape == (64 + 12,)
    assert lora.DOWN not in qkv and qkv[lora.UP].shape == (12, 64)
    config = dataclasses.replace(CONFIG, quantization="int8")
    qkv = serving_params(config, params, fuse=True)["layers"][0]["qkv"]
    assert qkv["kernel"].shape == (32, 64) and qkv["kernel"].dtype == jnp.int8
    assert qkv[lora.DOWN].shape == (32, 12)
