"""Chromium: found, started, a page shown, and memory for as many contexts as the config has."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from webagent_jax.browser import BrowserPool, ChromiumMissing, Session, chromium, process_memory
from webagent_jax.config import BrowserConfig, RunConfig
from webagent_jax.doctor.findings import Finding, broken, from_error, gib, ok, warning
from webagent_jax.doctor.machine import available_bytes
from webagent_jax.local_site import StaticSite
from webagent_jax.types import InfraError

_PAGE = "<!doctype html><title>doctor</title><button>Well</button>"
_SEEN = "button Well [1]"
_MORE = 3  # contexts, to see what one takes
_SAID = "[err]"  # before what Chromium said itself, in Playwright's account of it
_INSTALL = "install it with what it needs: python -m playwright install --with-deps chromium"


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    del workdir
    config = replace(cfg.browser, processes=1, observation="compact")
    if config.endpoints:
        for endpoint in config.endpoints:
            yield _elsewhere(replace(config, endpoints=(endpoint,)), endpoint)
        return
    try:
        path = config.executable or chromium.find()
    except ChromiumMissing as error:
        yield from_error("browser", error)
        return
    if not shutil.which(path):
        yield broken(
            "browser",
            f"browser.executable={path} is not a program",
            "name a Chromium there, or leave the option empty",
        )
        return
    if config.sandbox and os.geteuid() == 0:
        yield broken(
            "sandbox",
            "browser.sandbox is set, and never works for root",
            "run as another user, or --config.browser.sandbox=False",
        )
        return
    yield from _here(cfg, config, path)


def _elsewhere(config: BrowserConfig, endpoint: str) -> Finding:
    try:
        with BrowserPool(config) as pool, pool.session(origins=["127.0.0.1:1"]) as session:
            return ok("browser", f"{_version(session)} at {endpoint}")
    except InfraError as error:
        return from_error("browser", error, f"is a Playwright server running at {endpoint}?")


def _here(cfg: RunConfig, config: BrowserConfig, path: str) -> Iterator[Finding]:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        (folder / "index.html").write_text(_PAGE)
        site = opened.enter_context(StaticSite(folder))
        pool = opened.enter_context(BrowserPool(config, executable=path))
        alone = process_memory.resident_mb(os.getpid())
        begun = time.monotonic()

        def show() -> Session:
            session = opened.enter_context(pool.session(origins=[site.host]))
            session.goto(f"{site.url}/index.html")
            return session

        try:
            first = show()
            seen = first.observe().text
        except InfraError as error:
            yield broken("browser", _why(error), _INSTALL)
            return
        seconds = time.monotonic() - begun
        if seen != _SEEN:
            yield broken("browser", f"a page shows {seen!r}", f"another Chromium than {path}")
            return
        yield ok("browser", f"{_version(first)} at {path}, first page after {seconds:.1f} s")
        on = "on" if config.sandbox else "off; browser.sandbox is for pages that are not yours"
        yield ok("sandbox", on)
        one = process_memory.resident_mb(os.getpid()) - alone
        for _ in range(_MORE):
            show()
        each = max((process_memory.resident_mb(os.getpid()) - alone - one) / _MORE, 0.0)
    if one > 0:
        yield _memory(cfg, one, each)


def _memory(cfg: RunConfig, one: float, each: float) -> Finding:
    contexts, processes = cfg.rollout.contexts, cfg.browser.processes
    needed = (processes * one + contexts * each) * 2**20
    what = (
        f"{one:.0f} MiB for each of {processes} Chromium, {each:.0f} MiB or more for each of "
        f"{contexts} contexts: {gib(needed)} of {gib(available_bytes())}"
    )
    if needed > available_bytes():
        return warning("browser memory", what, "lower --config.rollout.contexts")
    return ok("browser memory", what)


def _why(error: InfraError) -> str:
    """The first line, and the first of what Chromium said itself, such as a missing library."""
    first, *others = str(error).splitlines()
    said = [line.partition(_SAID)[2].strip() for line in others if _SAID in line]
    return f"{first}: {said[0]}" if said else first


def _version(session: Session) -> str:
    agent = str(session.evaluate("navigator.userAgent"))
    return next(word for word in agent.split() if "Chrome/" in word).replace("/", " ")
