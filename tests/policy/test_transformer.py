"""Tests of the decoder: visibility, cached decoding and rematerialization."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from webagent_jax import policy
from webagent_jax.policy import attention, transformer

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
PARAMS = policy.init(CONFIG, jax.random.key(0))


def test_forest_mask_contains_ancestors_only():
    #        0
    #      1   4
    #    2 3     5      6 is a tree of its own
    ends = jnp.array([[6, 4, 3, 4, 6, 6, 7]])
    expected = np.zeros((7, 7), bool)
    for i, ancestors in enumerate([(0,), (0, 1), (0, 1, 2), (0, 1, 3), (0, 4), (0, 4, 5), (6,)]):
        expected[i, list(ancestors)] = True
    np.testing.assert_array_equal(attention.forest_mask(ends)[0], expected)


def test_gradients_depend_on_ancestors_only():
    ends = jnp.array([[6, 4, 3, 4, 6, 6, 7]])
    positions = jnp.array([[0, 1, 2, 2, 1, 2, 0]])
    tokens = jnp.arange(7)[None]
    mask = np.asarray(attention.forest_mask(ends)[0])

    def hidden(embed, index):
        params = {**PARAMS, "embed": embed}
        return transformer.forward(CONFIG, params, tokens, positions, ends)[0, index].sum()

    gradients = jax.jit(jax.grad(hidden))
    for index in range(7):
        gradient = gradients(PARAMS["embed"], index)[:7]
        np.testing.assert_array_equal(np.any(np.asarray(gradient) != 0, axis=-1), mask[index])


def test_remat_reduces_memory_and_preserves_gradients():
    tokens = jnp.zeros((1, 128), jnp.int32).at[0, :8].set(jnp.arange(8))
    temp_bytes: dict[str, int] = {}
    gradients = {}
    for remat in transformer.REMAT:
        config = dataclasses.replace(CONFIG, num_layers=6, remat=remat)
        params = policy.init(config, jax.random.key(0))
        loss = lambda p, c=config: jnp.square(policy.logits(c, p, tokens)).mean()  # noqa: E731
        compiled = jax.jit(jax.grad(loss)).lower(params).compile()
        temp_bytes[remat] = compiled.memory_analysis().temp_size_in_bytes
        gradients[remat] = compiled(params)
    assert temp_bytes["none"] > temp_bytes["dots"] > temp_bytes["attention"] > temp_bytes["full"]
    for remat in transformer.REMAT:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
            gradients["none"],
            gradients[remat],
        )
