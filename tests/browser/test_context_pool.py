"""Contexts that serve again: as good as fresh, or not given out again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from webagent_jax.browser import BrowserPool, Session, worker
from webagent_jax.browser.context_pool import ContextPool
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError

pytestmark = pytest.mark.browser

_LEAVE_TRACES = """async () => {
    document.cookie = 'a=1; max-age=999';
    window.name = 'a';
    localStorage.a = sessionStorage.a = 1;
    await new Promise((done) => { indexedDB.open('a').onsuccess = done; });
    document.querySelector('input').value = 'a';
    history.pushState({}, '', '/elsewhere');
    scrollTo(0, 300);
    setInterval(() => alert('still here'), 10);
    onbeforeunload = (event) => event.preventDefault();
}"""
_FIND_TRACES = """async () => [document.cookie, window.name, localStorage.length,
    sessionStorage.length, (await indexedDB.databases()).length, history.length, history.state,
    document.querySelector('input').value, scrollY, document.referrer, document.hasFocus()]"""
_PAGE = "<input aria-label=A><div style='height: 3000px'>x</div>"


@pytest.fixture
def pool() -> Iterator[BrowserPool]:
    with BrowserPool(BrowserConfig(call_timeout=30.0)) as one:
        yield one


def opened(pool: BrowserPool) -> tuple[int, int]:
    stats = pool.stats()
    return stats.contexts_opened, stats.contexts_reused


def test_a_page_finds_nothing_of_the_episode_before(pool: BrowserPool, site: Any) -> None:
    url = site.page(_PAGE)
    with pool.session(origins=[site.origin], reuse=True) as session:
        session.goto(url)
        fresh = session.evaluate(_FIND_TRACES)
        seen = session.observe()
        session.evaluate(_LEAVE_TRACES)
    with pool.session(origins=[site.origin], reuse=True) as session:
        session.goto(url)
        assert session.evaluate(_FIND_TRACES) == fresh
        assert session.observe() == seen
        refusal = session.act(Action(ActionKind.GO_BACK))
        assert refusal is not None and "no page to go back to" in refusal
    assert opened(pool) == (1, 1)


def test_only_who_asks_for_it_and_for_the_same_gets_it(
    pool: BrowserPool, site: Any, other_site: Any
) -> None:
    def play(at: Any, **how: Any) -> None:
        with pool.session(origins=[at.origin], **how) as session:
            session.goto(at.page("x"))

    play(site, reuse=True)
    play(other_site, reuse=True)
    play(site, reuse=True, init_script="0")
    play(site, reuse=True, viewport=(300, 300))
    play(site)
    play(site)
    assert opened(pool) == (6, 0)
    play(site, reuse=True)
    assert opened(pool) == (6, 1)
    with pytest.raises(ValueError, match="storage_state"):
        pool.session(origins=[site.origin], reuse=True, storage_state="state.json")


def _second_tab(session: Session, site: Any, other_site: Any) -> None:
    session.open_tab(site.page("y", path="/y"))


def _second_origin(session: Session, site: Any, other_site: Any) -> None:
    session.goto(other_site.page("y"))
    session.goto(site.page("x"))


def _framed_origin(session: Session, site: Any, other_site: Any) -> None:
    session.goto(site.page(f"<iframe src='{other_site.page('y')}'></iframe>", path="/framing"))


def _hang(session: Session, site: Any, other_site: Any) -> None:
    with pytest.raises(InfraError, match="no answer"):
        session.evaluate("() => { for (;;); }")


def _no_page(session: Session, site: Any, other_site: Any) -> None:
    """Nothing was ever shown: whose traces would be wiped?"""


@pytest.mark.parametrize("spoil", [_second_tab, _second_origin, _framed_origin, _hang, _no_page])
def test_what_is_hard_to_wipe_is_thrown_away(
    spoil: Callable[..., None], site: Any, other_site: Any
) -> None:
    config = BrowserConfig(call_timeout=3.0)
    origins = [site.origin, other_site.origin]
    with BrowserPool(config) as pool:
        with pool.session(origins=origins, reuse=True) as session:
            if spoil is not _no_page:
                session.goto(site.page("x"))
            spoil(session, site, other_site)
        with pool.session(origins=origins, reuse=True) as session:
            session.goto(site.page("x"))
        assert opened(pool) == (2, 0)


def test_it_can_be_forbidden(site: Any) -> None:
    with BrowserPool(BrowserConfig(reuse_contexts=False)) as pool:
        for _ in range(2):
            with pool.session(origins=[site.origin], reuse=True) as session:
                session.goto(site.page("x"))
        assert opened(pool) == (2, 0)


def test_what_nobody_takes_leaves(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_POOLED_SECONDS", 0.2)
    with BrowserPool(BrowserConfig()) as pool:
        with pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(site.page("x"))
        (chromium,) = pool._workers[0]._browsers
        deadline = time.monotonic() + 20
        while chromium.contexts and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not chromium.contexts and not chromium.browser.contexts
        with pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(site.page("x"))
        assert opened(pool) == (2, 0)


def test_sessions_count_towards_the_age_of_a_browser(site: Any) -> None:
    with BrowserPool(BrowserConfig(max_episodes_per_process=3)) as pool:
        for _ in range(7):
            with pool.session(origins=[site.origin], reuse=True) as session:
                session.goto(site.page("x"))
        stats = pool.stats()
        assert (stats.launches, stats.recycles, stats.crashes) == (3, 2, 0)
        assert opened(pool) == (3, 4)


def test_many_threads_keep_as_many_contexts_as_play_at_once(pool: BrowserPool, site: Any) -> None:
    url = site.page(_PAGE)

    def play(number: int) -> str:
        with pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(url)
            session.observe()
            session.act(Action(ActionKind.TYPE, "1", str(number)))
            return session.observe().text

    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(play, range(40)))
    assert [text.splitlines()[0] for text in texts] == [
        f"textbox A [1] = {number}" for number in range(40)
    ]
    fresh, again = opened(pool)
    assert fresh + again == 40 and fresh <= 4


def test_what_is_waited_for_in_vain_leaves() -> None:
    async def give_up() -> list[str]:
        left: list[str] = []
        shelf = ContextPool[str](60.0, left.append)

        async def wiping() -> str:
            await asyncio.sleep(0.1)
            return "context"

        shelf.put("spec", asyncio.ensure_future(wiping()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shelf.take("spec"), 0.01)
        await asyncio.sleep(0.3)
        assert await shelf.take("spec") is None
        return left

    assert asyncio.run(give_up()) == ["context"]
