"""The paged cache: a dense twin, and bits that do not depend on how many pages there are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.generate import cache as kv
from webagent_jax.generate import programs
from webagent_jax.policy import attention

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48)
LENGTH = 2 * kv.PAGE
SLOTS = 3


def _random(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def _filled() -> tuple[kv.Cache, jax.Array, jax.Array]:
    """A cache whose slots hold sequences, keys and values [B, T, K, E]."""
    keys, values = _random(1, SLOTS, LENGTH, 2, 8), _random(2, SLOTS, LENGTH, 2, 8)
    cache = kv.init(CONFIG, 3, SLOTS)
    for slot in range(SLOTS):
        layer = kv.from_sequence(keys[slot][None], values[slot][None], pages=5)
        cache = kv.insert(cache, (layer,) * CONFIG.num_layers, jnp.int32(slot))
    return cache, keys, values


def test_attention_over_pages_is_dense_attention():
    cache, keys, values = _filled()
    q, position = _random(3, SLOTS, 4, 8), jnp.array([0, kv.PAGE, LENGTH - 1])
    seen = (jnp.arange(LENGTH)[None] <= position[:, None])[:, None]
    expected = attention.masked(q[:, None], keys, values, seen)[:, 0]
    np.testing.assert_allclose(kv.attend(q, cache[0], position), expected, atol=1e-5)


def test_a_written_token_is_stored_where_it_belongs():
    cache, keys, values = _filled()
    k, v, position = _random(4, SLOTS, 2, 8), _random(5, SLOTS, 2, 8), jnp.array([3, 64, 127])
    slots = jnp.arange(SLOTS)
    again = kv.write(cache[0], k, v, position)
    keys, values = keys.at[slots, position].set(k), values.at[slots, position].set(v)
    for slot in range(SLOTS):
        expected = kv.from_sequence(keys[slot][None], values[slot][None], pages=3)
        np.testing.assert_array_equal(again.keys[:, slot], expected.keys[:, 0])
        np.testing.assert_array_equal(again.values[:, slot], expected.values[:, 0])
    beyond = kv.write(cache[0], k, v, jnp.full(SLOTS, 3 * kv.PAGE))
    np.testing.assert_array_equal(beyond.keys, cache[0].keys)


@pytest.mark.parametrize("slots", [1, 3, 4, 16])
def test_the_number_of_pages_changes_no_bit(slots):
    q = _random(3, slots, 4, 8)
    position = jax.random.randint(jax.random.key(6), (slots,), 0, LENGTH)
    shape = (2, slots, 2, 8, kv.PAGE)
    filled = (kv.LayerCache(_random(1, *shape), jnp.swapaxes(_random(2, *shape), -1, -2)),)
    attend = jax.jit(kv.attend)
    expected = attend(q, filled[0], position)
    for pages in (3, 4, 6, 16):
        actual = attend(q, kv.resize(filled, pages)[0], position)
        np.testing.assert_array_equal(actual, expected)


def test_rungs_grow_to_the_last():
    assert programs.rungs(4, 16, per_octave=2) == (4, 6, 8, 12, 16)
    assert programs.rungs(2, 10, per_octave=4) == (2, 3, 4, 5, 6, 7, 8, 10)
    assert programs.rungs(4, 1, per_octave=2) == (1,)
