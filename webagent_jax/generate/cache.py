"""The cache of keys and values: pages of a fixed number of tokens, as many as the longest needs.

A layer keeps the keys of all slots in one array [N, B, K, E, PAGE] and the values in another,
[N, B, K, PAGE, E]: N pages for each of B slots. The layouts are those that the two products of
attention read without a transposition.

Attention works page by page with products of one fixed shape and adds the pages up in order. A
page that a sequence has not reached adds exact zeros, so a sequence gets the same bits whatever N
is: the cache may grow and shrink with the company it keeps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax.policy import ModelConfig
from webagent_jax.policy.kernels.common import MASKED

PAGE = 64  # tokens; finer pages waste less, coarser ones make fewer products


class LayerCache(NamedTuple):
    keys: Array  # [N, B, K, E, PAGE]
    values: Array  # [N, B, K, PAGE, E]


Cache = tuple[LayerCache, ...]


def init(config: ModelConfig, pages: int, slots: int) -> Cache:
    heads, width = config.num_kv_heads, config.head_dim
    return tuple(
        LayerCache(
            jnp.zeros((pages, slots, heads, width, PAGE), config.dtype),
            jnp.zeros((pages, slots, heads, PAGE, width), config.dtype),
        )
        for _ in range(config.num_layers)
    )


def from_sequence(keys: Array, values: Array, pages: int) -> LayerCache:
    """One sequence, keys and values [1, T, K, E] with T whole pages, as a cache of one slot."""

    def paged(x: Array) -> Array:  # [1, T, K, E] -> [T / PAGE, 1, K, E, PAGE]
        _, length, heads, width = x.shape
        x = jnp.moveaxis(x.reshape(length // PAGE, 1, PAGE, heads, width), 2, -1)
        return jnp.pad(x, ((0, pages - x.shape[0]), *[(0, 0)] * 4))

    return LayerCache(paged(keys), jnp.swapaxes(paged(values), -1, -2))


def insert(cache: Cache, sequence: Cache, slot: Array) -> Cache:
    """`cache` with one slot's pages replaced by those of `sequence`, which has at least as many."""

    def place(stored: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(stored, new[: stored.shape[0]], slot, axis=1)

    return jax.tree.map(place, cache, sequence)


def resize(cache: Cache, pages: int) -> Cache:
    """`cache` with so many pages per slot: cut, or grown by zeros."""

    def resized(x: Array) -> Array:
        return jnp.pad(x[:pages], ((0, max(0, pages - x.shape[0])), *[(0, 0)] * 4))

    return jax.tree.map(resized, cache)


def write(layer: LayerCache, key: Array, value: Array, position: Array) -> LayerCache:
    """Stores one token per slot: key and value [B, K, E] at `position` [B].

    A position beyond the pages, which only a slot out of use can have, is not stored.
    """
    slot = jnp.arange(key.shape[0])[:, None]
    head = jnp.arange(key.shape[1])[None, :]
    page, offset = (position // PAGE)[:, None], (position % PAGE)[:, None]
    return LayerCache(
        layer.keys.at[page, slot, head, :, offset].set(key, unique_indices=True, mode="drop"),
        layer.values.at[page, slot, head, offset].set(value, unique_indices=True, mode="drop"),
    )


def attend(q: Array, layer: LayerCache, position: Array) -> Array:
    """Attention of one token per slot, q [B, H, E], to all that is stored up to its `position`.

    Returns [B, H, E]. Scores and softmax in float32.
    """
    pages, batch, kv_heads, width, _ = layer.keys.shape
    grouped = q.reshape(batch, kv_heads, -1, width)
    grouped = jnp.broadcast_to(grouped, (pages, *grouped.shape))
    scores = jnp.einsum(
        "nbkge,nbkec->nbkgc", grouped, layer.keys, preferred_element_type=jnp.float32
    )
    stored = jnp.arange(pages * PAGE).reshape(pages, 1, PAGE)
    visible = (stored <= position[None, :, None])[:, :, None, None, :]
    scores = jnp.where(visible, scores * width**-0.5, MASKED)
    largest = jnp.max(_over_pages(jnp.maximum, scores), axis=-1, keepdims=True)
    weights = jnp.exp(scores - largest[None])
    total = jnp.sum(_over_pages(jnp.add, weights), axis=-1, keepdims=True)
    out = jnp.einsum(
        "nbkgc,nbkce->nbkge",
        weights.astype(layer.values.dtype),
        layer.values,
        preferred_element_type=jnp.float32,
    )
    return (_over_pages(jnp.add, out) / total).astype(q.dtype).reshape(q.shape)


def _over_pages(combine: Callable[[Array, Array], Array], pages: Array) -> Array:
    """Combines the pages element by element, first to last.

    Not a reduction of the library, which groups the terms, and even picks the routine for what is
    computed next to it, by the size of the whole array: then N would show in the last bits.
    """
    return functools.reduce(combine, list(pages))
