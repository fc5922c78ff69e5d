"""Tests of the prefix cache, with a reference model on random sequences of operations."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from webagent_jax.inference.prefix_cache import PageAllocation, PrefixCache

PAGE_TOKENS = 4


def _tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _allocate(pages: PrefixCache, prompt: np.ndarray, extra_tokens: int = 1) -> PageAllocation:
    allocation = pages.allocate(prompt, len(prompt) + extra_tokens)
    assert allocation is not None
    return allocation


ONE_TO_TEN = _tokens(*range(1, 11))  # two and a half pages


def test_prefix_cache_shares_common_prefixes():
    pages = PrefixCache(20, PAGE_TOKENS)
    first = _allocate(pages, ONE_TO_TEN)
    second = _allocate(pages, ONE_TO_TEN)
    other = _allocate(pages, _tokens(1, 2, 3, 4, 9, 9, 9, 9))
    assert (first.num_cached_tokens, second.num_cached_tokens, other.num_cached_tokens) == (0, 8, 4)
    assert first.pages[:2] == second.pages[:2]
    assert first.pages[2] != second.pages[2]
    assert other.pages[0] == first.pages[0]
    assert len({*first.pages, *second.pages, *other.pages}) == 3 + 1 + 2


def test_prefix_is_cached_after_free():
    pages = PrefixCache(20, PAGE_TOKENS)
    pages.free(_allocate(pages, ONE_TO_TEN))
    assert pages.num_free_pages == 19
    assert _allocate(pages, ONE_TO_TEN).num_cached_tokens == 8


def test_pages_are_shared_only_after_equal_prefix():
    pages = PrefixCache(20, PAGE_TOKENS)
    pages.free(_allocate(pages, ONE_TO_TEN))
    prompt = np.concatenate([_tokens(7, 7, 7), ONE_TO_TEN])
    first, other = (pages.allocate(prompt, 14, prefix_len=3) for _ in range(2))
    assert first and other
    assert (first.num_cached_tokens, other.num_cached_tokens) == (0, 8)
    assert (len(first.pages), len(first.path)) == (3, 2)
    changed = pages.allocate(np.concatenate([_tokens(7, 8, 7), ONE_TO_TEN]), 14, prefix_len=3)
    assert changed is not None and changed.num_cached_tokens == 0
    assert pages.allocate(prompt[:3], 4, prefix_len=3) is not None


def test_free_drops_unfilled_pages():
    pages = PrefixCache(20, PAGE_TOKENS)
    pages.free(_allocate(pages, ONE_TO_TEN[:5]))
    pages.free(_allocate(pages, ONE_TO_TEN), is_filled=False)
    assert pages.num_free_pages == 19
    assert _allocate(pages, ONE_TO_TEN).num_cached_tokens == 4


def test_has_dependents_is_true_after_sharing():
    pages = PrefixCache(20, PAGE_TOKENS)
    first = _allocate(pages, ONE_TO_TEN)
    assert not first.has_dependents
    second = _allocate(pages, ONE_TO_TEN)
    assert first.has_dependents
    assert not second.has_dependents


def test_eviction_removes_least_recently_used_leaves():
    pages = PrefixCache(7, PAGE_TOKENS)  # six are available
    first_prompt, second_prompt = _tokens(*[1] * 8), _tokens(*[2] * 8)
    pages.free(_allocate(pages, first_prompt, extra_tokens=0))
    pages.free(_allocate(pages, second_prompt, extra_tokens=0))
    pages.free(_allocate(pages, first_prompt, extra_tokens=0))  # second_prompt is now the older one
    pages.free(_allocate(pages, _tokens(*[3] * 12), extra_tokens=0))
    assert _allocate(pages, first_prompt, extra_tokens=0).num_cached_tokens == 8
    assert _allocate(pages, second_prompt, extra_tokens=0).num_cached_tokens == 4


def test_failed_allocation_does_not_change_cache():
    pages = PrefixCache(4, PAGE_TOKENS)
    allocation = _allocate(pages, ONE_TO_TEN[:8], extra_tokens=0)
    assert pages.allocate(ONE_TO_TEN, 13) is None
    assert pages.num_free_pages == 1
    pages.free(allocation)
    assert pages.num_free_pages == 3
    assert _allocate(pages, ONE_TO_TEN).num_cached_tokens == 8


def test_reset_keeps_allocated_pages():
    pages = PrefixCache(20, PAGE_TOKENS)
    allocation = _allocate(pages, ONE_TO_TEN)
    pages.free(_allocate(pages, _tokens(*[5] * 8)))
    pages.reset()
    assert pages.num_free_pages == 16
    assert _allocate(pages, ONE_TO_TEN).num_cached_tokens == 0
    pages.free(allocation)
    assert pages.num_free_pages == 16


class _ReferenceCache:
    """Expected pages in use, counted from the allocations themselves."""

    def __init__(self, pages: int) -> None:
        self.pages, self.allocations = pages, list[PageAllocation]()

    def check(self, cache: PrefixCache) -> None:
        pages_in_use = {page for allocation in self.allocations for page in allocation.pages}
        assert cache.num_free_pages == self.pages - 1 - len(pages_in_use)
        assert 0 not in pages_in_use
        private = [
            page
            for allocation in self.allocations
            for page in allocation.pages[len(allocation.path) :]
        ]
        shared = {
            page
            for allocation in self.allocations
            for page in allocation.pages[: len(allocation.path)]
        }
        assert len(private) == len(set(private))
        assert not shared & set(private)


_prompts = st.lists(st.integers(0, 1), min_size=1, max_size=20)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("lease"), _prompts, st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 99), st.booleans()),
        st.just(("forget",)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(operations=_operations, pages=st.integers(2, 24))
def test_random_operations_match_reference_cache(operations, pages):
    cache, reference = PrefixCache(pages, PAGE_TOKENS), _ReferenceCache(pages)
    for operation in operations:
        if operation[0] == "lease":
            prompt, tokens = _tokens(*operation[1]), len(operation[1]) + operation[2]
            num_free_pages = cache.num_free_pages
            allocation = cache.allocate(prompt, tokens)
            if allocation is None:
                assert -(-tokens // PAGE_TOKENS) > num_free_pages
            else:
                assert len(allocation.pages) == -(-tokens // PAGE_TOKENS)
                assert allocation.num_cached_tokens <= len(prompt)
                reference.allocations.append(allocation)
        elif operation[0] == "forget":
            cache.reset()
        elif reference.allocations:
            allocation = reference.allocations.pop(operation[1] % len(reference.allocations))
            cache.free(allocation, is_filled=operation[2] or allocation.has_dependents)
        reference.check(cache)
    for allocation in reference.allocations:
        cache.free(allocation)
    assert cache.num_free_pages == pages - 1
