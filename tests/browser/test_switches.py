"""What Chromium is started with: all that Playwright says, and pages live as in a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from webagent_jax.browser import BrowserPool, Session, process_memory
from webagent_jax.config import BrowserConfig

pytestmark = pytest.mark.browser

_OFF = "--disable-features="
_FRAMES = """async () => {
    const box = document.querySelector('div');
    const told = [];
    new IntersectionObserver(([entry]) => told.push(entry.isIntersecting)).observe(box);
    new ResizeObserver(() => told.push('size')).observe(box);
    document.addEventListener('scroll', () => told.push('scroll'));
    box.addEventListener('transitionend', () => told.push('transition'));
    const frame = () => new Promise(requestAnimationFrame);
    await frame(); await frame();
    scrollTo(0, 9000);
    box.style.width = '90px';
    const end = performance.now() + 10000;
    while (!told.includes('transition') && performance.now() < end) await frame();
    return [...new Set(told)].map(String).sort();
}"""


def test_what_playwright_switches_off_stays_off() -> None:
    """Chromium heeds the last of several --disable-features, and that is ours."""
    with BrowserPool(BrowserConfig()) as pool, pool.session(origins=["127.0.0.1:1"]):
        (host,) = pool._workers[0]._browsers
        assert host.pid is not None
        command = process_memory._read(host.pid, "cmdline").split("\0")
        theirs, ours = (
            set(switch.removeprefix(_OFF).split(","))
            for switch in command
            if switch.startswith(_OFF)
        )
        assert theirs < ours


def test_pages_are_drawn(show: Callable[[str], Session]) -> None:
    """Frames come, and with them everything that a page hears of by them."""
    page = "<div style='width: 9px; height: 9px; margin-top: 9000px; transition: width 50ms'>"
    session = show(page)
    assert session.evaluate(_FRAMES) == ["false", "scroll", "size", "transition", "true"]
    assert len(session.screenshot()) > 1000
