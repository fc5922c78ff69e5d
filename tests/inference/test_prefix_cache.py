"""The account of pages against a slow twin, over any order of leases and ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from webagent_jax.inference.prefix_cache import PageAllocation, PrefixCache

SIZE = 4


def _tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _lease(pages: PrefixCache, prompt: np.ndarray, more: int = 1) -> PageAllocation:
    lease = pages.allocate(prompt, len(prompt) + more)
    assert lease is not None
    return lease


ONE_TO_TEN = _tokens(*range(1, 11))  # two whole pages and a half


def test_what_begins_alike_holds_the_same_pages():
    pages = PrefixCache(20, SIZE)
    first = _lease(pages, ONE_TO_TEN)
    again = _lease(pages, ONE_TO_TEN)
    other = _lease(pages, _tokens(1, 2, 3, 4, 9, 9, 9, 9))
    assert (first.num_cached_tokens, again.num_cached_tokens, other.num_cached_tokens) == (0, 8, 4)
    assert first.pages[:2] == again.pages[:2]
    assert first.pages[2] != again.pages[2]
    assert other.pages[0] == first.pages[0]
    assert len({*first.pages, *again.pages, *other.pages}) == 3 + 1 + 2


def test_a_prefix_outlives_its_lease():
    pages = PrefixCache(20, SIZE)
    pages.free(_lease(pages, ONE_TO_TEN))
    assert pages.num_free_pages == 19
    assert _lease(pages, ONE_TO_TEN).num_cached_tokens == 8


def test_what_stands_before_tells_pages_apart():
    pages = PrefixCache(20, SIZE)
    pages.free(_lease(pages, ONE_TO_TEN))
    prompt = np.concatenate([_tokens(7, 7, 7), ONE_TO_TEN])
    first, other = (pages.allocate(prompt, 14, prefix_len=3) for _ in range(2))
    assert first and other
    assert (first.num_cached_tokens, other.num_cached_tokens) == (0, 8)
    assert (len(first.pages), len(first.path)) == (3, 2)
    changed = pages.allocate(np.concatenate([_tokens(7, 8, 7), ONE_TO_TEN]), 14, prefix_len=3)
    assert changed is not None and changed.num_cached_tokens == 0
    assert pages.allocate(prompt[:3], 4, prefix_len=3) is not None


def test_what_was_never_filled_is_forgotten():
    pages = PrefixCache(20, SIZE)
    pages.free(_lease(pages, ONE_TO_TEN[:5]))
    pages.free(_lease(pages, ONE_TO_TEN), is_filled=False)
    assert pages.num_free_pages == 19
    assert _lease(pages, ONE_TO_TEN).num_cached_tokens == 4


def test_it_knows_who_is_counted_on():
    pages = PrefixCache(20, SIZE)
    first = _lease(pages, ONE_TO_TEN)
    assert not first.has_dependents
    second = _lease(pages, ONE_TO_TEN)
    assert first.has_dependents
    assert not second.has_dependents


def test_the_least_recently_used_goes_first_and_leaves_before_roots():
    pages = PrefixCache(7, SIZE)  # six to hand out
    old, young = _tokens(*[1] * 8), _tokens(*[2] * 8)
    pages.free(_lease(pages, old, more=0))
    pages.free(_lease(pages, young, more=0))
    pages.free(_lease(pages, old, more=0))  # used again: now `young` is the older
    pages.free(_lease(pages, _tokens(*[3] * 12), more=0))
    assert _lease(pages, old, more=0).num_cached_tokens == 8
    assert _lease(pages, young, more=0).num_cached_tokens == 4


def test_no_lease_without_room_and_nothing_is_lost_by_asking():
    pages = PrefixCache(4, SIZE)
    held = _lease(pages, ONE_TO_TEN[:8], more=0)
    assert pages.allocate(ONE_TO_TEN, 13) is None
    assert pages.num_free_pages == 1
    pages.free(held)
    assert pages.num_free_pages == 3
    assert _lease(pages, ONE_TO_TEN).num_cached_tokens == 8


def test_forgetting_keeps_what_is_held():
    pages = PrefixCache(20, SIZE)
    held = _lease(pages, ONE_TO_TEN)
    pages.free(_lease(pages, _tokens(*[5] * 8)))
    pages.reset()
    assert pages.num_free_pages == 16
    assert _lease(pages, ONE_TO_TEN).num_cached_tokens == 0
    pages.free(held)
    assert pages.num_free_pages == 16


class _Twin:
    """Every page that ought to be held, counted from the leases themselves."""

    def __init__(self, pages: int) -> None:
        self.pages, self.leases = pages, list[PageAllocation]()

    def check(self, cache: PrefixCache) -> None:
        held = {page for lease in self.leases for page in lease.pages}
        assert cache.num_free_pages == self.pages - 1 - len(held)
        assert 0 not in held
        own = [page for lease in self.leases for page in lease.pages[len(lease.path) :]]
        shared = {page for lease in self.leases for page in lease.pages[: len(lease.path)]}
        assert len(own) == len(set(own))
        assert not shared & set(own)


_prompts = st.lists(st.integers(0, 1), min_size=1, max_size=20)
_acts = st.lists(
    st.one_of(
        st.tuples(st.just("lease"), _prompts, st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 99), st.booleans()),
        st.just(("forget",)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(acts=_acts, pages=st.integers(2, 24))
def test_no_page_is_lost_or_handed_out_twice(acts, pages):
    cache, twin = PrefixCache(pages, SIZE), _Twin(pages)
    for act in acts:
        if act[0] == "lease":
            prompt, tokens = _tokens(*act[1]), len(act[1]) + act[2]
            available = cache.num_free_pages
            lease = cache.allocate(prompt, tokens)
            if lease is None:
                assert -(-tokens // SIZE) > available
            else:
                assert len(lease.pages) == -(-tokens // SIZE)
                assert lease.num_cached_tokens <= len(prompt)
                twin.leases.append(lease)
        elif act[0] == "forget":
            cache.reset()
        elif twin.leases:
            lease = twin.leases.pop(act[1] % len(twin.leases))
            cache.free(lease, is_filled=act[2] or lease.has_dependents)
        twin.check(cache)
    for lease in twin.leases:
        cache.free(lease)
    assert cache.num_free_pages == pages - 1
