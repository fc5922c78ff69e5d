"""Operations counted from shapes are those that XLA counts, where XLA counts them all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from webagent_jax import policy
from webagent_jax.policy import flops

ROWS, LENGTH = 2, 96  # one block of dense attention, which computes every pair


@pytest.mark.parametrize(
    "config",
    [
        policy.ModelConfig(512, 256, 1, 4, 2, 64, 640),
        policy.ModelConfig(512, 256, 1, 8, 8, 96, 320, qkv_bias=False, qk_norm=True),
    ],
)
def test_a_forward_pass(config):
    tokens = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)
    program = jax.jit(lambda params, tokens: policy.logits(config, params, tokens))
    counted = program.lower(policy.abstract_params(config), tokens).compile().cost_analysis()
    known = flops.layer_flops(config, ROWS * LENGTH, ROWS * LENGTH**2)
    known += flops.logits_flops(config, ROWS * LENGTH)
    assert known <= counted["flops"] < 1.1 * known
