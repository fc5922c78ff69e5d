"""Tests of the paged KV cache and of attention over it, with all layouts and the GPU kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.inference import gpu_paged_attention, paged_attention
from webagent_jax.inference import kv_cache as kv
from webagent_jax.policy import attention

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48)
PAGE_TOKENS = 16
COLUMNS = 4
LENGTH = COLUMNS * PAGE_TOKENS
LAYOUTS = get_args(kv.Layout)
# Layout of the pages, and implementation of the attention to them.
VARIANTS = [*((layout, "xla") for layout in LAYOUTS), ("rows", "gpu")]
# With the number of queries per sequence.
QUERY_VARIANTS = [(queries, *variant) for queries in (1, 5) for variant in VARIANTS]


@pytest.fixture(autouse=True)
def _interpret_gpu_kernel(monkeypatch):
    interpreted = partial(gpu_paged_attention.attend, interpret=True)
    monkeypatch.setattr(gpu_paged_attention, "attend", interpreted)


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _page_tables(sequences: int, seed: int = 0) -> np.ndarray:
    """Return page tables of shuffled pages, without page 0."""
    pages = 1 + np.random.default_rng(seed).permutation(sequences * COLUMNS)
    return pages.reshape(sequences, COLUMNS).astype(np.int32)


def _paged_layer(
    keys: np.ndarray, values: np.ndarray, tables: np.ndarray, layout: kv.Layout = "transposed"
) -> kv.LayerKVPages:
    """Store keys and values [B, T, K, E] in pages by numpy; page 0 contains large numbers."""
    batch, _, heads, width = keys.shape

    def to_pages(x: np.ndarray) -> np.ndarray:  # [B, T, K, E] -> [N, K, S, E]
        x = x.reshape(batch, COLUMNS, PAGE_TOKENS, heads, width).transpose(0, 1, 3, 2, 4)
        pages = np.full((tables.max() + 1, heads, PAGE_TOKENS, width), 1e6, np.float32)
        pages[tables] = x
        return pages

    key_pages, value_pages = to_pages(keys), to_pages(values)
    if layout == "transposed":
        return kv.TransposedPages(np.swapaxes(key_pages, -1, -2), value_pages)
    if layout == "rows":
        return kv.RowPages(key_pages, value_pages)
    return kv.FusedPages(np.concatenate([key_pages, value_pages], axis=-1))


def _sequences(count: int) -> tuple[np.ndarray, np.ndarray]:
    return _random(1, count, LENGTH, 2, 8), _random(2, count, LENGTH, 2, 8)


def _jit_attention(
    pages_per_block: int, implementation: paged_attention.Implementation = "xla"
) -> Callable[..., jax.Array]:
    return jax.jit(
        partial(
            paged_attention.paged_attention,
            pages_per_block=pages_per_block,
            implementation=implementation,
        )
    )


def _metadata(
    tables: np.ndarray, positions: np.ndarray, columns: int, has_prefix: Any = False
) -> paged_attention.AttentionMetadata:
    return paged_attention.AttentionMetadata(
        tables, positions, np.int32(columns), np.broadcast_to(has_prefix, len(tables))
    )


@pytest.mark.parametrize("queries, layout, implementation", QUERY_VARIANTS)
@pytest.mark.parametrize("pages_per_block", [1, 2, 8])
def test_paged_attention_matches_dense_attention(queries, pages_per_block, layout, implementation):
    (keys, values), tables = _sequences(3), _page_tables(3)
    q = _random(3, 3, queries, 4, 8)
    starts = np.array([0, PAGE_TOKENS, LENGTH - queries])
    positions = starts[:, None] + np.arange(queries)
    mask = np.arange(LENGTH) <= positions[:, :, None]
    expected = jax.jit(attention.masked_attention)(q, keys, values, mask)
    layer = _paged_layer(keys, values, tables, layout)
    actual = _jit_attention(pages_per_block, implementation)(
        q, layer, None, _metadata(tables, positions, COLUMNS)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("layout, implementation", VARIANTS)
@pytest.mark.parametrize("pages_per_block", [1, 2])
@pytest.mark.parametrize("sequences", [3, 16])  # fewer and more than XLA treats as a small array
def test_paged_attention_is_bitwise_independent_of_batch(
    sequences, pages_per_block, layout, implementation
):
    (keys, values), tables = _sequences(sequences), _page_tables(sequences)
    layer, q = _paged_layer(keys, values, tables, layout), _random(3, sequences, 1, 4, 8)
    positions = np.random.default_rng(6).integers(0, 2 * PAGE_TOKENS, (sequences, 1))
    attend = _jit_attention(pages_per_block, implementation)
    expected = attend(q, layer, None, _metadata(tables, positions, 2))
    actual = attend(q, layer, None, _metadata(tables, positions, 3))
    np.testing.assert_array_equal(actual, expected)
    positions[1:] = LENGTH - 1
    long_batch = attend(q, layer, None, _metadata(tables, positions, COLUMNS))
    np.testing.assert_array_equal(long_batch[0], expected[0])


PREFIX_TOKENS = 40


def _shared_prefix() -> tuple[kv.LayerSharedPrefix, np.ndarray, np.ndarray]:
    """Return a shared prefix, and its keys and values [A, K, E]."""
    keys, values = _random(7, PREFIX_TOKENS, 2, 8), _random(8, PREFIX_TOKENS, 2, 8)
    return kv.LayerSharedPrefix(keys.transpose(1, 2, 0), values.swapaxes(0, 1)), keys, values


@pytest.mark.parametrize("queries, layout, implementation", QUERY_VARIANTS)
@pytest.mark.parametrize("scores", [96, 2**18])  # the prefix in several blocks, and in one
def test_shared_prefix_applies_to_selected_sequences(
    queries, scores, monkeypatch, layout, implementation
):
    monkeypatch.setattr(paged_attention, "_MAX_PREFIX_SCORES", scores)
    (keys, values), tables, has_prefix = (
        _sequences(3),
        _page_tables(3),
        np.array([True, False, True]),
    )
    layer, (prefix, prefix_keys, prefix_values) = (
        _paged_layer(keys, values, tables, layout),
        _shared_prefix(),
    )
    q = _random(3, 3, queries, 4, 8)
    positions = np.array([0, PAGE_TOKENS, LENGTH - queries])[:, None] + np.arange(queries)

    def prepend(prefix_array: np.ndarray, array: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [np.broadcast_to(prefix_array, (3, *prefix_array.shape)), array], axis=1
        )

    indices = np.arange(PREFIX_TOKENS + LENGTH)
    mask = (indices >= PREFIX_TOKENS) & (indices - PREFIX_TOKENS <= positions[:, :, None])
    mask |= (indices < PREFIX_TOKENS) & has_prefix[:, None, None]
    all_keys, all_values = prepend(prefix_keys, keys), prepend(prefix_values, values)
    expected = jax.jit(attention.masked_attention)(q, all_keys, all_values, mask)
    actual = _jit_attention(2, implementation)(
        q, layer, prefix, _metadata(tables, positions, COLUMNS, has_prefix)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    plain_output = _jit_attention(2, implementation)(
        q, layer, None, _metadata(tables, positions, COLUMNS)
    )
    np.testing.assert_array_equal(actual[1], plain_output[1])


@pytest.mark.parametrize("layout, implementation", VARIANTS)
def test_shared_prefix_does_not_affect_other_sequences(layout, implementation):
    (keys, values), tables, prefix = _sequences(4), _page_tables(4), _shared_prefix()[0]
    layer, q = _paged_layer(keys, values, tables, layout), _random(3, 4, 1, 4, 8)
    positions = np.array([[3], [20], [50], [50]])
    attend = _jit_attention(2, implementation)
    first_output = attend(
        q, layer, prefix, _metadata(tables, positions, COLUMNS, [True, True, False, True])
    )
    q[3] += 1.0
    second_output = attend(
        q, layer, prefix, _metadata(tables, positions, COLUMNS, [True, False, True, True])
    )
    np.testing.assert_array_equal(first_output[0], second_output[0])


def _random_pages(num_pages: int, page_tokens: int) -> kv.RowPages:
    shape = (num_pages, 2, page_tokens, 16)
    return kv.RowPages(jnp.asarray(_random(1, *shape)), jnp.asarray(_random(2, *shape)))


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("bfloat16", 1e-2)])
def test_gpu_kernel_matches_xla_on_long_sequences(dtype, tolerance):
    # Several pages per split, a last split that is shorter, and splits without pages.
    positions = np.array([[0], [7], [8], [16 * 8], [37 * 8 - 3], [40 * 8 - 1]])
    tables = 1 + np.random.default_rng(0).permutation(len(positions) * 40).reshape(-1, 40)
    layer = _random_pages(tables.size + 1, page_tokens=8)
    q, layer = jax.tree.map(
        lambda x: jnp.asarray(x, dtype), (_random(3, len(positions), 1, 6, 16), layer)
    )
    metadata = _metadata(tables, positions, 40)
    expected = _jit_attention(4)(q, layer, None, metadata).astype(jnp.float32)
    actual = _jit_attention(4, "gpu")(q, layer, None, metadata).astype(jnp.float32)
    np.testing.assert_allclose(actual, expected, atol=tolerance)


def test_gpu_kernel_is_finite_at_stale_positions():
    tables = np.arange(12).reshape(3, 4)
    metadata = _metadata(tables, np.array([[-9], [4 * 8], [10**6]]), 4)
    q = _random(3, 3, 1, 4, 16)
    out = _jit_attention(4, "gpu")(q, _random_pages(12, page_tokens=8), None, metadata)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_write_tokens_stores_at_positions(layout):
    (keys, values), tables = _sequences(3), _page_tables(3)
    k, v = _random(4, 3, 2, 8), _random(5, 3, 2, 8)
    position = np.array([3, PAGE_TOKENS, LENGTH - 1])
    layer = jax.tree.map(jnp.array, _paged_layer(keys, values, tables, layout))
    rows = np.arange(3)
    pages = tables[rows, position // PAGE_TOKENS]
    actual = layer.write_tokens(k, v, pages, position % PAGE_TOKENS)
    keys[rows, position], values[rows, position] = k, v
    jax.tree.map(np.testing.assert_array_equal, actual, _paged_layer(keys, values, tables, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_write_pages_stores_whole_pages(layout):
    (keys, values), tables = _sequences(2), _page_tables(2)
    k, v = _random(4, 2, PAGE_TOKENS, 2, 8), _random(5, 2, PAGE_TOKENS, 2, 8)
    layer = jax.tree.map(jnp.array, _paged_layer(keys, values, tables, layout))
    shape = (1, 2 * PAGE_TOKENS, 2, 8)
    actual = kv.write_pages(layer, k.reshape(shape), v.reshape(shape), tables[1:, 1:3])
    keys[1, PAGE_TOKENS : 3 * PAGE_TOKENS], values[1, PAGE_TOKENS : 3 * PAGE_TOKENS] = (
        np.concatenate(k),
        np.concatenate(v),
    )
    jax.tree.map(np.testing.assert_array_equal, actual, _paged_layer(keys, values, tables, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kv_bytes_per_token_matches_allocation(layout):
    layers = kv.init_pages(CONFIG, pages=3, page_tokens=PAGE_TOKENS, layout=layout)
    assert kv.kv_bytes_per_token(CONFIG) * 3 * PAGE_TOKENS == sum(
        x.nbytes for x in jax.tree.leaves(layers)
    )
