"""Tests of the FLOP counts against the cost analysis of XLA."""

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
def test_forward_flops_match_xla_cost_analysis(config):
    tokens = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)
    program = jax.jit(lambda params, tokens: policy.logits(config, params, tokens))
    cost_analysis = program.lower(policy.abstract_params(config), tokens).compile().cost_analysis()
    expected = flops.layer_flops(config, ROWS * LENGTH, ROWS * LENGTH**2)
    expected += flops.logits_flops(config, ROWS * LENGTH)
    assert expected <= cost_analysis["flops"] < 1.1 * expected
