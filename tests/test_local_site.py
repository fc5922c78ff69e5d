"""Tests of local sites: latency, missing pages and the cache."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webagent_jax.config import ConfigError, RunConfig, SuiteConfig
from webagent_jax.local_site import StaticSite

LATENCY_SECONDS = 0.3


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as response:
        return bytes(response.read())


def test_latency_delays_responses_concurrently(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("hello")
    with StaticSite(tmp_path, latency=LATENCY_SECONDS) as site, ThreadPoolExecutor(20) as executor:
        start = time.monotonic()
        assert fetch(f"{site.url}/page.html") == b"hello"
        single_seconds = time.monotonic() - start
        assert single_seconds >= LATENCY_SECONDS
        responses = executor.map(fetch, [f"{site.url}/page.html"] * 20)
        assert list(responses) == [b"hello"] * 20
        # The requests wait concurrently.
        assert time.monotonic() - start - single_seconds < 20 * LATENCY_SECONDS


def test_missing_page_keeps_its_status(tmp_path: Path) -> None:
    (tmp_path / "404.html").write_text("missing")
    with StaticSite(tmp_path) as site:
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError, match="404") as error:
                fetch(f"{site.url}/nowhere")
            assert error.value.read() == b"missing"


def test_folder_address_without_slash_is_redirected_each_time(tmp_path: Path) -> None:
    (tmp_path / "products").mkdir()
    (tmp_path / "products" / "index.html").write_text("products")
    with StaticSite(tmp_path) as site:
        for _ in range(2):
            with urllib.request.urlopen(f"{site.url}/products", timeout=20) as response:
                assert (response.url, response.read()) == (f"{site.url}/products/", b"products")


def test_changed_file_is_served_again(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("first")
    with StaticSite(tmp_path) as site:
        assert fetch(f"{site.url}/page.html") == b"first"
        page.write_text("another")
        assert fetch(f"{site.url}/page.html") == b"another"
        page.unlink()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(f"{site.url}/page.html")


def test_post_to_cached_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("hello")
    with StaticSite(tmp_path) as site:
        assert fetch(f"{site.url}/page.html") == b"hello"
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(f"{site.url}/page.html", data=b"", timeout=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"response_delay_ms": -1.0}, "must not be negative"),
        ({"response_delay_ms": 100.0, "name": "webarena_lite"}, "needs an embedded suite"),
    ],
)
def test_invalid_response_delay_is_rejected(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(suite=SuiteConfig(**options))
