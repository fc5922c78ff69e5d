"""The cache in pages: a dense twin, and bits that do not depend on company."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.inference import kv_cache as kv
from webagent_jax.policy import attention

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48)
SIZE = 16
COLUMNS = 4
LENGTH = COLUMNS * SIZE


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _tables(sequences: int, seed: int = 0) -> np.ndarray:
    """Pages in no order, none of them 0."""
    pages = 1 + np.random.default_rng(seed).permutation(sequences * COLUMNS)
    return pages.reshape(sequences, COLUMNS).astype(np.int32)


def _layer(keys: np.ndarray, values: np.ndarray, tables: np.ndarray) -> kv.LayerKVPages:
    """Sequences, keys and values [B, T, K, E], in pages by numpy; the trash holds large numbers."""
    batch, _, heads, width = keys.shape

    def paged(x: np.ndarray) -> np.ndarray:  # [B, T, K, E] -> [N, K, S, E]
        x = x.reshape(batch, COLUMNS, SIZE, heads, width).transpose(0, 1, 3, 2, 4)
        out = np.full((tables.max() + 1, heads, SIZE, width), 1e6, np.float32)
        out[tables] = x
        return out

    return kv.LayerKVPages(np.swapaxes(paged(keys), -1, -2), paged(values))


def _sequences(count: int) -> tuple[np.ndarray, np.ndarray]:
    return _random(1, count, LENGTH, 2, 8), _random(2, count, LENGTH, 2, 8)


def _attend(together: int) -> Callable[..., jax.Array]:
    return jax.jit(partial(kv.paged_attention, pages_per_block=together))


def _reach(
    tables: np.ndarray, positions: np.ndarray, columns: int, after: Any = False
) -> kv.AttentionMetadata:
    return kv.AttentionMetadata(
        tables, positions, np.int32(columns), np.broadcast_to(after, len(tables))
    )


@pytest.mark.parametrize("together", [1, 2, 8])
@pytest.mark.parametrize("queries", [1, 5])
def test_attention_over_pages_is_dense_attention(queries, together):
    (keys, values), tables = _sequences(3), _tables(3)
    q = _random(3, 3, queries, 4, 8)
    last = np.array([0, SIZE, LENGTH - queries])
    positions = last[:, None] + np.arange(queries)
    seen = np.arange(LENGTH) <= positions[:, :, None]
    expected = jax.jit(attention.masked_attention)(q, keys, values, seen)
    layer = _layer(keys, values, tables)
    actual = _attend(together)(q, layer, None, _reach(tables, positions, COLUMNS))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("sequences", [3, 16])  # fewer and more than XLA treats as a small array
def test_longer_company_changes_no_bit(sequences, together):
    (keys, values), tables = _sequences(sequences), _tables(sequences)
    layer, q = _layer(keys, values, tables), _random(3, sequences, 1, 4, 8)
    positions = np.random.default_rng(6).integers(0, 2 * SIZE, (sequences, 1))
    attend = _attend(together)
    expected = attend(q, layer, None, _reach(tables, positions, 2))
    actual = attend(q, layer, None, _reach(tables, positions, 3))
    np.testing.assert_array_equal(actual, expected)
    positions[1:] = LENGTH - 1
    longer = attend(q, layer, None, _reach(tables, positions, COLUMNS))
    np.testing.assert_array_equal(longer[0], expected[0])


BEFORE = 40  # tokens of a preamble


def _preamble() -> tuple[kv.LayerSharedPrefix, np.ndarray, np.ndarray]:
    """And its keys and values [A, K, E]."""
    keys, values = _random(7, BEFORE, 2, 8), _random(8, BEFORE, 2, 8)
    return kv.LayerSharedPrefix(keys.transpose(1, 2, 0), values.swapaxes(0, 1)), keys, values


@pytest.mark.parametrize("scores", [96, 2**18])  # at once: the preamble in pieces, and whole
@pytest.mark.parametrize("queries", [1, 5])
def test_a_preamble_stands_before_some_of_the_sequences(queries, scores, monkeypatch):
    monkeypatch.setattr(kv, "_MAX_PREFIX_SCORES", scores)
    (keys, values), tables, after = _sequences(3), _tables(3), np.array([True, False, True])
    layer, (preamble, first_keys, first_values) = _layer(keys, values, tables), _preamble()
    q = _random(3, 3, queries, 4, 8)
    positions = np.array([0, SIZE, LENGTH - queries])[:, None] + np.arange(queries)

    def whole(first: np.ndarray, own: np.ndarray) -> np.ndarray:
        return np.concatenate([np.broadcast_to(first, (3, *first.shape)), own], axis=1)

    stored = np.arange(BEFORE + LENGTH)
    seen = (stored >= BEFORE) & (stored - BEFORE <= positions[:, :, None])
    seen |= (stored < BEFORE) & after[:, None, None]
    all_keys, all_values = whole(first_keys, keys), whole(first_values, values)
    expected = jax.jit(attention.masked_attention)(q, all_keys, all_values, seen)
    actual = _attend(2)(q, layer, preamble, _reach(tables, positions, COLUMNS, after))
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    plain = _attend(2)(q, layer, None, _reach(tables, positions, COLUMNS))
    np.testing.assert_array_equal(actual[1], plain[1])


def test_whom_a_preamble_stands_before_changes_no_bit_of_others():
    (keys, values), tables, preamble = _sequences(4), _tables(4), _preamble()[0]
    layer, q = _layer(keys, values, tables), _random(3, 4, 1, 4, 8)
    positions = np.array([[3], [20], [50], [50]])
    attend = _attend(2)
    some = attend(q, layer, preamble, _reach(tables, positions, COLUMNS, [True, True, False, True]))
    q[3] += 1.0
    other = attend(
        q, layer, preamble, _reach(tables, positions, COLUMNS, [True, False, True, True])
    )
    np.testing.assert_array_equal(some[0], other[0])


def test_tokens_are_stored_where_they_belong():
    (keys, values), tables = _sequences(3), _tables(3)
    k, v = _random(4, 3, 2, 8), _random(5, 3, 2, 8)
    position = np.array([3, SIZE, LENGTH - 1])
    before = jax.tree.map(jnp.array, _layer(keys, values, tables))
    rows = np.arange(3)
    after = kv.write_tokens(before, k, v, tables[rows, position // SIZE], position % SIZE)
    keys[rows, position], values[rows, position] = k, v
    jax.tree.map(np.testing.assert_array_equal, after, _layer(keys, values, tables))


def test_whole_pages_are_stored_where_they_belong():
    (keys, values), tables = _sequences(2), _tables(2)
    k, v = _random(4, 2, SIZE, 2, 8), _random(5, 2, SIZE, 2, 8)
    before = jax.tree.map(jnp.array, _layer(keys, values, tables))
    stretch = (1, 2 * SIZE, 2, 8)
    after = kv.write_pages(before, k.reshape(stretch), v.reshape(stretch), tables[1:, 1:3])
    keys[1, SIZE : 3 * SIZE], values[1, SIZE : 3 * SIZE] = np.concatenate(k), np.concatenate(v)
    jax.tree.map(np.testing.assert_array_equal, after, _layer(keys, values, tables))


def test_the_bytes_of_a_token():
    layers = kv.init_pages(CONFIG, pages=3, page_tokens=SIZE)
    assert kv.kv_bytes_per_token(CONFIG) * 3 * SIZE == sum(
        x.nbytes for x in jax.tree.leaves(layers)
    )
