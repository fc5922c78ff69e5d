"""Tests of Chromium's launch arguments: Playwright's remain, and pages render frames."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from webagent_jax.browser import BrowserPool, Session, process_memory
from webagent_jax.config import BrowserConfig

pytestmark = pytest.mark.browser

_DISABLE_FEATURES = "--disable-features="
_EVENTS_SCRIPT = """async () => {
    const box = document.querySelector('div');
    const told = [];
    // A busy browser reports several changes in one call.
    new IntersectionObserver((entries) => told.push(...entries.map((e) => e.isIntersecting)))
        .observe(box);
    new ResizeObserver(() => told.push('size')).observe(box);
    document.addEventListener('scroll', () => told.push('scroll'));
    box.addEventListener('transitionend', () => told.push('transition'));
    const frame = () => new Promise(requestAnimationFrame);
    await frame(); await frame();
    scrollTo(0, 9000);
    box.style.width = '90px';
    const end = performance.now() + 10000;
    const isComplete = () => told.includes('transition') && told.includes(true);
    while (!isComplete() && performance.now() < end) await frame();
    return [...new Set(told)].map(String).sort();
}"""


def test_disabled_features_include_playwright_defaults() -> None:
    """Chromium uses the last --disable-features argument, which is ours."""
    with BrowserPool(BrowserConfig()) as pool, pool.session(origins=["127.0.0.1:1"]):
        (process,) = pool._workers[0]._browsers
        assert process.pid is not None
        command = process_memory._read(process.pid, "cmdline").split("\0")
        playwright_features, our_features = (
            set(argument.removeprefix(_DISABLE_FEATURES).split(","))
            for argument in command
            if argument.startswith(_DISABLE_FEATURES)
        )
        assert playwright_features < our_features


def test_pages_render_frames_and_fire_frame_events(show: Callable[[str], Session]) -> None:
    page = "<div style='width: 9px; height: 9px; margin-top: 9000px; transition: width 50ms'>"
    session = show(page)
    assert session.evaluate(_EVENTS_SCRIPT) == ["false", "scroll", "size", "transition", "true"]
    assert len(session.screenshot()) > 1000
