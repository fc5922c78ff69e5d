"""Embedded sites that answer late."""

from __future__ import annotations

import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webagent_jax.config import ConfigError, RunConfig, SuiteConfig
from webagent_jax.local_site import StaticSite

LATE = 0.3  # seconds


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return bytes(answer.read())


def test_every_answer_is_late_and_many_wait_at_once(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("hello")
    with StaticSite(tmp_path, latency=LATE) as site, ThreadPoolExecutor(20) as browsers:
        begun = time.monotonic()
        assert fetch(f"{site.url}/page.html") == b"hello"
        once = time.monotonic() - begun
        assert once >= LATE
        answers = browsers.map(fetch, [f"{site.url}/page.html"] * 20)
        assert list(answers) == [b"hello"] * 20
        assert time.monotonic() - begun - once < 20 * LATE  # one after the other would take more


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"response_delay_ms": -1.0}, "must not be negative"),
        ({"response_delay_ms": 100.0, "name": "webarena_lite"}, "needs an embedded suite"),
    ],
)
def test_latency_is_refused_where_it_cannot_be(told, message) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(suite=SuiteConfig(**told))
