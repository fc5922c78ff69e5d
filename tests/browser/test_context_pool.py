"""Tests of context reuse: contexts are cleared before reuse, or closed."""

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
    await caches.open('a');
    document.querySelector('input').value = 'a';
    history.pushState({}, '', '/elsewhere');
    scrollTo(0, 300);
    setInterval(() => alert('still here'), 10);
    onbeforeunload = (event) => event.preventDefault();
}"""
_FIND_TRACES = """async () => [document.cookie, window.name, localStorage.length,
    sessionStorage.length, (await indexedDB.databases()).length, await caches.keys(),
    history.length, history.state, document.querySelector('input').value,
    document.querySelector('input').matches(':hover'), scrollY, document.referrer,
    document.hasFocus()]"""
_PAGE = "<input aria-label=A><div style='height: 3000px'>x</div>"


@pytest.fixture
def pool() -> Iterator[BrowserPool]:
    with BrowserPool(BrowserConfig(call_timeout=30.0)) as browser_pool:
        yield browser_pool


def context_counts(pool: BrowserPool) -> tuple[int, int]:
    stats = pool.stats()
    return stats.contexts_opened, stats.contexts_reused


def test_reused_context_has_no_state_of_last_session(pool: BrowserPool, site: Any) -> None:
    url = site.add_page(_PAGE)
    with pool.session(origins=[site.origin], reuse=True) as session:
        session.goto(url)
        state = session.evaluate(_FIND_TRACES)
        observation = session.observe()
        assert session.act(Action(ActionKind.HOVER, "1")) is None
        session.evaluate(_LEAVE_TRACES)
    with pool.session(origins=[site.origin], reuse=True) as session:
        session.goto(url)
        assert session.evaluate(_FIND_TRACES) == state
        assert session.observe() == observation
        refusal = session.act(Action(ActionKind.GO_BACK))
        assert refusal is not None and "no page to go back to" in refusal
    assert context_counts(pool) == (1, 1)


def test_context_is_reused_only_for_equal_options(
    pool: BrowserPool, site: Any, other_site: Any
) -> None:
    def visit(target: Any, **options: Any) -> None:
        with pool.session(origins=[target.origin], **options) as session:
            session.goto(target.add_page("x"))

    visit(site, reuse=True)
    visit(other_site, reuse=True)
    visit(site, reuse=True, init_script="0")
    visit(site, reuse=True, viewport=(300, 300))
    visit(site)
    visit(site)
    assert context_counts(pool) == (6, 0)
    visit(site, reuse=True)
    assert context_counts(pool) == (6, 1)
    with pytest.raises(ValueError, match="storage_state"):
        pool.session(origins=[site.origin], reuse=True, storage_state="state.json")


def _open_second_tab(session: Session, site: Any, other_site: Any) -> None:
    session.open_tab(site.add_page("y", path="/y"))


def _visit_second_origin(session: Session, site: Any, other_site: Any) -> None:
    session.goto(other_site.add_page("y"))
    session.goto(site.add_page("x"))


def _embed_second_origin(session: Session, site: Any, other_site: Any) -> None:
    session.goto(
        site.add_page(f"<iframe src='{other_site.add_page('y')}'></iframe>", path="/framing")
    )


def _hang(session: Session, site: Any, other_site: Any) -> None:
    with pytest.raises(InfraError, match="no response"):
        session.evaluate("() => { for (;;); }")


def _show_no_page(session: Session, site: Any, other_site: Any) -> None:
    """Show no page: the origin to clear is unknown."""


@pytest.mark.parametrize(
    "spoil", [_open_second_tab, _visit_second_origin, _embed_second_origin, _hang, _show_no_page]
)
def test_context_with_complex_state_is_not_reused(
    spoil: Callable[..., None], site: Any, other_site: Any
) -> None:
    config = BrowserConfig(call_timeout=3.0)
    origins = [site.origin, other_site.origin]
    with BrowserPool(config) as pool:
        with pool.session(origins=origins, reuse=True) as session:
            if spoil is not _show_no_page:
                session.goto(site.add_page("x"))
            spoil(session, site, other_site)
        with pool.session(origins=origins, reuse=True) as session:
            session.goto(site.add_page("x"))
        assert context_counts(pool) == (2, 0)


def test_reuse_contexts_false_disables_reuse(site: Any) -> None:
    with BrowserPool(BrowserConfig(reuse_contexts=False)) as pool:
        for _ in range(2):
            with pool.session(origins=[site.origin], reuse=True) as session:
                session.goto(site.add_page("x"))
        assert context_counts(pool) == (2, 0)


def test_idle_pooled_context_is_closed(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_POOLED_SECONDS", 0.2)
    with BrowserPool(BrowserConfig()) as pool:
        with pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(site.add_page("x"))
        (chromium,) = pool._workers[0]._browsers
        deadline = time.monotonic() + 20
        while chromium.contexts and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not chromium.contexts and not chromium.browser.contexts
        with pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(site.add_page("x"))
        assert context_counts(pool) == (2, 0)


def test_sessions_with_reuse_count_towards_max_episodes(site: Any) -> None:
    with BrowserPool(BrowserConfig(max_episodes_per_process=3)) as pool:
        for _ in range(7):
            with pool.session(origins=[site.origin], reuse=True) as session:
                session.goto(site.add_page("x"))
        stats = pool.stats()
        assert (stats.launches, stats.recycles, stats.crashes) == (3, 2, 0)
        assert context_counts(pool) == (3, 4)


def test_num_contexts_is_at_most_num_threads(pool: BrowserPool, site: Any) -> None:
    url = site.add_page(_PAGE)

    def type_number(number: int) -> str:
        with pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(url)
            session.observe()
            session.act(Action(ActionKind.TYPE, "1", str(number)))
            return session.observe().text

    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(type_number, range(40)))
    assert [text.splitlines()[0] for text in texts] == [
        f"textbox A [1] = {number}" for number in range(40)
    ]
    num_opened, num_reused = context_counts(pool)
    assert num_opened + num_reused == 40 and num_opened <= 4


def test_context_is_evicted_after_take_timeout() -> None:
    async def time_out_take() -> list[str]:
        evictions: list[str] = []
        contexts = ContextPool[str](60.0, evictions.append)

        async def recycle() -> str:
            await asyncio.sleep(0.1)
            return "context"

        contexts.put("spec", asyncio.ensure_future(recycle()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(contexts.take("spec"), 0.01)
        await asyncio.sleep(0.3)
        assert await contexts.take("spec") is None
        return evictions

    assert asyncio.run(time_out_take()) == ["context"]
