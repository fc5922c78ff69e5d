"""Check of Chromium: executable, sandbox, a test page, and memory for the config's contexts."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from webagent_jax.browser import (
    BrowserPool,
    ChromiumMissingError,
    Session,
    chromium,
    process_memory,
)
from webagent_jax.config import BrowserConfig, RunConfig
from webagent_jax.doctor.check_result import (
    CheckResult,
    failure,
    from_error,
    gib,
    ok,
    warning,
)
from webagent_jax.doctor.machine import available_bytes
from webagent_jax.local_site import StaticSite
from webagent_jax.types import InfraError

_PAGE = "<!doctype html><title>doctor</title><button>Well</button>"
_EXPECTED_TEXT = "button Well [1]"
_EXTRA_CONTEXTS = 3  # opened to measure the memory of one
_CHROMIUM_STDERR = "[err]"  # prefix of Chromium's stderr in Playwright's error messages
_INSTALL = "install it with its dependencies: python -m playwright install --with-deps chromium"


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the browser."""
    del workdir
    # One process and one format make the expected text and the measured memory independent of the
    # config.
    config = replace(cfg.browser, num_processes=1, observation_format="compact")
    if config.ws_endpoints:
        for endpoint in config.ws_endpoints:
            yield _check_remote(replace(config, ws_endpoints=(endpoint,)), endpoint)
        return
    try:
        path = chromium.find_executable(config.executable_path)
    except ChromiumMissingError as error:
        yield from_error("browser", error)
        return
    if config.chromium_sandbox and os.geteuid() == 0:
        yield failure(
            "sandbox",
            "browser.chromium_sandbox=True does not work as root",
            "run as another user, or set --config.browser.chromium_sandbox=False",
        )
        return
    yield from _check_local(cfg, config, path)


def _check_remote(config: BrowserConfig, endpoint: str) -> CheckResult:
    try:
        with BrowserPool(config) as pool, pool.session(origins=["127.0.0.1:1"]) as session:
            return ok("browser", f"{_browser_version(session)} at {endpoint}")
    except InfraError as error:
        return from_error("browser", error, f"start a Playwright server at {endpoint}")


def _check_local(cfg: RunConfig, config: BrowserConfig, path: str) -> Iterator[CheckResult]:
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        # A page of our own separates faults of the browser from those of a site.
        (folder / "index.html").write_text(_PAGE)
        site = resources.enter_context(StaticSite(folder))
        pool = resources.enter_context(BrowserPool(config, executable=path))
        rss_without_browser = process_memory.tree_rss_mib(os.getpid())
        start = time.monotonic()

        def open_page() -> Session:
            session = resources.enter_context(pool.session(origins=[site.address]))
            session.goto(f"{site.url}/index.html")
            return session

        try:
            first = open_page()
            text = first.observe().text
        except InfraError as error:
            yield failure("browser", _error_summary(error), _install_fix(config, path))
            return
        seconds = time.monotonic() - start
        # A Chromium that starts may still lack features that the scripts need.
        if text != _EXPECTED_TEXT:
            yield failure(
                "browser",
                f"the test page shows {text!r} instead of {_EXPECTED_TEXT!r}",
                f"use another Chromium than {path}: --config.browser.executable_path=PATH",
            )
            return
        yield ok(
            "browser", f"{_browser_version(first)} at {path}, first page after {seconds:.1f} s"
        )
        state = (
            "on"
            if config.chromium_sandbox
            else "off; set --config.browser.chromium_sandbox=True for untrusted pages"
        )
        yield ok("sandbox", state)
        # The memory of this process and its children; its growth is that of Chromium.
        mib_per_browser = process_memory.tree_rss_mib(os.getpid()) - rss_without_browser
        for _ in range(_EXTRA_CONTEXTS):
            open_page()
        mib_per_context = max(
            (process_memory.tree_rss_mib(os.getpid()) - rss_without_browser - mib_per_browser)
            / _EXTRA_CONTEXTS,
            0.0,
        )
    if mib_per_browser > 0:
        yield _check_memory(cfg, mib_per_browser, mib_per_context)


def _check_memory(cfg: RunConfig, mib_per_browser: float, mib_per_context: float) -> CheckResult:
    num_contexts, num_processes = cfg.rollout.max_concurrent_episodes, cfg.browser.num_processes
    # A lower bound, because the contexts of the test show a page with a single button.
    bytes_needed = (num_processes * mib_per_browser + num_contexts * mib_per_context) * 2**20
    description = (
        f"{mib_per_browser:.0f} MiB for each of {num_processes} Chromium processes, at least "
        f"{mib_per_context:.0f} MiB for each of {num_contexts} contexts: {gib(bytes_needed)} of "
        f"{gib(available_bytes())}"
    )
    if bytes_needed > available_bytes():
        return warning(
            "browser memory", description, "lower --config.rollout.max_concurrent_episodes"
        )
    return ok("browser memory", description)


def _install_fix(config: BrowserConfig, path: str) -> str:
    """Return the fix of a Chromium that does not start."""
    if config.executable_path or shutil.which(Path(path).name) != path:
        return _INSTALL
    # Programs on the PATH have priority over the download of Playwright.
    return (
        f"{_INSTALL}; if {path} on the PATH is still used, set WEBAGENT_CHROMIUM to the path of "
        "the new one"
    )


def _error_summary(error: InfraError) -> str:
    """Return the first line, and the first line of Chromium's stderr, such as a missing library."""
    # Playwright's message contains the complete log of Chromium.
    first, *details = str(error).splitlines()
    messages = [
        line.partition(_CHROMIUM_STDERR)[2].strip() for line in details if _CHROMIUM_STDERR in line
    ]
    return f"{first}: {messages[0]}" if messages else first


def _browser_version(session: Session) -> str:
    agent = str(session.evaluate("navigator.userAgent"))
    return next(word for word in agent.split() if "Chrome/" in word).replace("/", " ")
