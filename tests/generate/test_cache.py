"""The paged cache: a dense twin, and bits that do not depend on how many pages there are."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.generate import cache as kv
from webagent_jax.generate import programs
from webagent_jax.policy import attention

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48)
LENGTH = 2 * kv.PAGE
SLOTS = 3


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _layer(keys: np.ndarray, values: np.ndarray, pages: int) -> kv.LayerCache:
    """Sequences, keys and values [B, T, K, E], laid out in pages by numpy."""

    def paged(x: np.ndarray) -> np.ndarray:  # [B, T, K, E] -> [N, B, K, PAGE, E]
        batch, length, heads, width = x.shape
        x = x.reshape(batch, length // kv.PAGE, kv.PAGE, heads, width).transpose(1, 0, 3, 2, 4)
        return np.concatenate([x, np.zeros((pages - len(x), *x.shape[1:]), np.float32)])

    return kv.LayerCache(np.swapaxes(paged(keys), -1, -2), paged(values))


KEYS, VALUES = _random(1, SLOTS, LENGTH, 2, 8), _random(2, SLOTS, LENGTH, 2, 8)


def test_sequences_are_put_into_their_slots():
    @jax.jit
    def put(cache: kv.Cache, keys: jax.Array, values: jax.Array, slot: jax.Array) -> kv.Cache:
        layer = kv.from_sequence(keys[None], values[None], pages=5)
        return kv.insert(cache, (layer,) * CONFIG.num_layers, slot)

    cache = jax.tree.map(lambda x: x + 7.0, kv.init(CONFIG, 3, SLOTS))  # of those who were before
    for slot in range(SLOTS):
        cache = put(cache, KEYS[slot], VALUES[slot], slot)
    for layer in cache:
        jax.tree.map(np.testing.assert_array_equal, layer, _layer(KEYS, VALUES, pages=3))


def test_attention_over_pages_is_dense_attention():
    q, position = _random(3, SLOTS, 4, 8), np.array([0, kv.PAGE, LENGTH - 1])
    seen = (np.arange(LENGTH)[None] <= position[:, None])[:, None]
    expected = jax.jit(attention.masked)(q[:, None], KEYS, VALUES, seen)[:, 0]
    actual = jax.jit(kv.attend)(q, _layer(KEYS, VALUES, pages=3), position)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_written_token_is_stored_where_it_belongs():
    k, v = _random(4, SLOTS, 2, 8), _random(5, SLOTS, 2, 8)
    write = jax.jit(kv.write)
    before = _layer(KEYS, VALUES, pages=3)
    slots, position = np.arange(SLOTS), np.array([3, 64, 127])
    keys, values = KEYS.copy(), VALUES.copy()
    keys[slots, position], values[slots, position] = k, v
    after = write(before, k, v, position)
    jax.tree.map(np.testing.assert_array_equal, after, _layer(keys, values, pages=3))
    beyond = write(before, k, v, np.full(SLOTS, 3 * kv.PAGE))
    jax.tree.map(np.testing.assert_array_equal, beyond, before)


@pytest.mark.parametrize("slots", [3, 16])  # fewer and more than XLA treats as a small array
def test_the_number_of_pages_changes_no_bit(slots):
    q, position = _random(3, slots, 4, 8), np.random.default_rng(6).integers(0, LENGTH, slots)
    keys, values = _random(1, slots, LENGTH, 2, 8), _random(2, slots, LENGTH, 2, 8)
    attend = jax.jit(kv.attend)
    expected = attend(q, _layer(keys, values, pages=2), position)
    for pages in (3, 6, 16):
        actual = attend(q, _layer(keys, values, pages), position)
        np.testing.assert_array_equal(actual, expected)


def test_resizing_keeps_what_fits():
    cache = (_layer(KEYS, VALUES, pages=2),)
    for pages in (3, 1):
        (layer,) = jax.jit(functools.partial(kv.resize, pages=pages))(cache)
        wanted = _layer(KEYS[:, : pages * kv.PAGE], VALUES[:, : pages * kv.PAGE], pages)
        jax.tree.map(np.testing.assert_array_equal, layer, wanted)


def test_rungs_grow_to_the_last():
    assert programs.rungs(4, 16, per_octave=2) == (4, 6, 8, 12, 16)
    assert programs.rungs(2, 10, per_octave=4) == (2, 3, 4, 5, 6, 7, 8, 10)
    assert programs.rungs(4, 1, per_octave=2) == (1,)
