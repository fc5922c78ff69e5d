"""The account of pages against a slow twin, over any order of leases and ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from webagent_jax.inference.prefix_cache import Lease, PageCache

SIZE = 4


def _tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _lease(pages: PageCache, prompt: np.ndarray, more: int = 1) -> Lease:
    lease = pages.lease(prompt, len(prompt) + more)
    assert lease is not None
    return lease


ONE_TO_TEN = _tokens(*range(1, 11))  # two whole pages and a half


def test_what_begins_alike_holds_the_same_pages():
    pages = PageCache(20, SIZE)
    first = _lease(pages, ONE_TO_TEN)
    again = _lease(pages, ONE_TO_TEN)
    other = _lease(pages, _tokens(1, 2, 3, 4, 9, 9, 9, 9))
    assert (first.cached, again.cached, other.cached) == (0, 8, 4)
    assert first.pages[:2] == again.pages[:2]
    assert first.pages[2] != again.pages[2]
    assert other.pages[0] == first.pages[0]
    assert len({*first.pages, *again.pages, *other.pages}) == 3 + 1 + 2


def test_a_prefix_outlives_its_lease():
    pages = PageCache(20, SIZE)
    pages.end(_lease(pages, ONE_TO_TEN))
    assert pages.available == 19
    assert _lease(pages, ONE_TO_TEN).cached == 8


def test_what_stands_before_tells_pages_apart():
    pages = PageCache(20, SIZE)
    pages.end(_lease(pages, ONE_TO_TEN))
    prompt = np.concatenate([_tokens(7, 7, 7), ONE_TO_TEN])
    first, other = (pages.lease(prompt, 14, before=3) for _ in range(2))
    assert first and other
    assert (first.cached, other.cached) == (0, 8)
    assert (len(first.pages), len(first.path)) == (3, 2)
    changed = pages.lease(np.concatenate([_tokens(7, 8, 7), ONE_TO_TEN]), 14, before=3)
    assert changed is not None and changed.cached == 0
    assert pages.lease(prompt[:3], 4, before=3) is not None


def test_what_was_never_filled_is_forgotten():
    pages = PageCache(20, SIZE)
    pages.end(_lease(pages, ONE_TO_TEN[:5]))
    pages.end(_lease(pages, ONE_TO_TEN), filled=False)
    assert pages.available == 19
    assert _lease(pages, ONE_TO_TEN).cached == 4


def test_it_knows_who_is_counted_on():
    pages = PageCache(20, SIZE)
    first = _lease(pages, ONE_TO_TEN)
    assert not first.counted_on
    second = _lease(pages, ONE_TO_TEN)
    assert first.counted_on
    assert not second.counted_on


def test_the_least_recently_used_goes_first_and_leaves_before_roots():
    pages = PageCache(7, SIZE)  # six to hand out
    old, young = _tokens(*[1] * 8), _tokens(*[2] * 8)
    pages.end(_lease(pages, old, more=0))
    pages.end(_lease(pages, young, more=0))
    pages.end(_lease(pages, old, more=0))  # used again: now `young` is the older
    pages.end(_lease(pages, _tokens(*[3] * 12), more=0))
    assert _lease(pages, old, more=0).cached == 8
    assert _lease(pages, young, more=0).cached == 4


def test_no_lease_without_room_and_nothing_is_lost_by_asking():
    pages = PageCache(4, SIZE)
    held = _lease(pages, ONE_TO_TEN[:8], more=0)
    assert pages.lease(ONE_TO_TEN, 13) is None
    assert pages.available == 1
    pages.end(held)
    assert pages.available == 3
    assert _lease(pages, ONE_TO_TEN).cached == 8


def test_forgetting_keeps_what_is_held():
    pages = PageCache(20, SIZE)
    held = _lease(pages, ONE_TO_TEN)
    pages.end(_lease(pages, _tokens(*[5] * 8)))
    pages.forget()
    assert pages.available == 16
    assert _lease(pages, ONE_TO_TEN).cached == 0
    pages.end(held)
    assert pages.available == 16


class _Twin:
    """Every page that ought to be held, counted from the leases themselves."""

    def __init__(self, pages: int) -> None:
        self.pages, self.leases = pages, list[Lease]()

    def check(self, cache: PageCache) -> None:
        held = {page for lease in self.leases for page in lease.pages}
        assert cache.available == self.pages - 1 - len(held)
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
    cache, twin = PageCache(pages, SIZE), _Twin(pages)
    for act in acts:
        if act[0] == "lease":
            prompt, tokens = _tokens(*act[1]), len(act[1]) + act[2]
            available = cache.available
            lease = cache.lease(prompt, tokens)
            if lease is None:
                assert -(-tokens // SIZE) > available
            else:
                assert len(lease.pages) == -(-tokens // SIZE)
                assert lease.cached <= len(prompt)
                twin.leases.append(lease)
        elif act[0] == "forget":
            cache.forget()
        elif twin.leases:
            lease = twin.leases.pop(act[1] % len(twin.leases))
            cache.end(lease, filled=act[2] or lease.counted_on)
        twin.check(cache)
    for lease in twin.leases:
        cache.end(lease)
    assert cache.available == pages - 1
