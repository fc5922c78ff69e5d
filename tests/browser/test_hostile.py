"""Tests of sites that violate HTTP, hang or exhaust memory: each ends as an error or as INFRA.

Every failure occurs in three ways: on the first page of an episode, after Goto, and after a click
on a link.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from tests.browser.conftest import Site, find_full_browser
from tests.browser.hostile_site import HostileSite
from webagent_jax.browser import BrowserPool, Session, chromium, context, injected
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError

pytestmark = pytest.mark.browser

REDIRECTS = "did not load: net::ERR_TOO_MANY_REDIRECTS"
RESET = "did not load: net::ERR_CONNECTION_RESET"
GARBAGE = "did not load: net::ERR_INVALID_HTTP_RESPONSE"
NO_ANSWER = "did not answer in 4 s"
SERVER_ERROR = "the shop is closed"
PARTIAL_BODY = "the beginning"

# results on the first page, after Goto, and after a click on a link
OUTCOMES = {
    "endless-redirect": ("INFRA: ERR_TOO_MANY_REDIRECTS", REDIRECTS, REDIRECTS),
    "endless-headers": ("INFRA: Timeout 4000ms", NO_ANSWER, NO_ANSWER),
    "dripping-body": ("INFRA: Timeout 4000ms", PARTIAL_BODY, PARTIAL_BODY),
    "silence": ("INFRA: Timeout 4000ms", NO_ANSWER, NO_ANSWER),
    "500": (SERVER_ERROR, SERVER_ERROR, SERVER_ERROR),
    "half-a-body": ("INFRA: Timeout 4000ms", "did not load", "did not load"),
    "garbage": ("INFRA: ERR_INVALID_HTTP_RESPONSE", GARBAGE, GARBAGE),
    "reset": ("INFRA: ERR_CONNECTION_RESET", RESET, RESET),
}
NAVIGATIONS = ("start", "goto", "click")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(chromium.find_executable, id="found"),
        pytest.param(find_full_browser, id="full", marks=pytest.mark.slow),
    ],
)
def short_timeout_pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    config = BrowserConfig(
        call_timeout=8.0, navigation_timeout=4.0, settle_timeout=1.0, max_rss_mib=700
    )
    with BrowserPool(config, executable=request.param()) as pool:
        yield pool


@pytest.fixture
def hostile_site() -> Iterator[HostileSite]:
    site = HostileSite()
    yield site
    site.close()


def run_episode(session: Session, navigation: str, home: str, url: str) -> str:
    """Return the last observed text and error."""
    try:
        session.goto(url if navigation == "start" else home)
        if navigation == "start":
            observation = session.observe()
        elif navigation == "goto":
            observation = session.observe(session.act(Action(ActionKind.GOTO, None, url)))
        else:
            session.evaluate("url => { document.body.innerHTML = `<a href=${url}>Go</a>` }", url)
            assert "1" in session.observe().elements
            observation = session.observe(session.act(Action(ActionKind.CLICK, "1")))
    except InfraError as error:
        return f"INFRA: {error}"
    return f"{observation.text} {observation.error or ''}"


def run_navigations(
    pool: BrowserPool, home: HostileSite, sites: Sequence[HostileSite], paths: Sequence[str]
) -> list[list[str]]:
    """Return the results of NAVIGATIONS for each address; they run concurrently to wait less."""

    def run(url: str, navigation: str) -> str:
        with pool.session(origins=[home.origin, *(site.origin for site in sites)]) as session:
            return run_episode(session, navigation, home.url(""), url)

    urls = [site.url(path) for site in sites for path in paths]
    with ThreadPoolExecutor(6) as threads:
        return [
            [future.result() for future in row]
            for row in [
                [threads.submit(run, url, navigation) for navigation in NAVIGATIONS] for url in urls
            ]
        ]


def test_broken_response_ends_with_error(
    short_timeout_pool: BrowserPool, hostile_site: HostileSite
) -> None:
    results = run_navigations(short_timeout_pool, hostile_site, [hostile_site], list(OUTCOMES))
    for path, row in zip(OUTCOMES, results, strict=True):
        for navigation, actual, expected in zip(NAVIGATIONS, row, OUTCOMES[path], strict=True):
            assert expected.removeprefix("INFRA: ") in actual, (path, navigation)
            assert actual.startswith("INFRA") == expected.startswith("INFRA"), (path, navigation)


def test_endless_script_ends_as_infra_error(
    short_timeout_pool: BrowserPool, hostile_site: HostileSite
) -> None:
    (results,) = run_navigations(short_timeout_pool, hostile_site, [hostile_site], ["hung-script"])
    assert all(result.startswith("INFRA: ") for result in results), results
    # the next episode works
    with short_timeout_pool.session(origins=[hostile_site.origin]) as session:
        assert run_episode(session, "start", "", hostile_site.url("")) == "home "


def test_page_above_memory_limit_is_killed(
    short_timeout_pool: BrowserPool, hostile_site: HostileSite
) -> None:
    with short_timeout_pool.session(origins=[hostile_site.origin]) as session:
        session.goto(hostile_site.url("greedy-script"))
        message, deadline = "", time.monotonic() + 120  # memory grows slowly on a busy host
        while message != "the page crashed" and time.monotonic() < deadline:
            with pytest.raises(InfraError) as error:
                session.evaluate("new Promise(() => 0)")
            message = str(error.value)
        assert message == "the page crashed"
    assert short_timeout_pool.stats().crashes == 0


def test_untrusted_certificate_is_rejected(
    short_timeout_pool: BrowserPool, hostile_site: HostileSite, tmp_path: Path
) -> None:
    tls_site = HostileSite(certificate=write_certificate(tmp_path))
    (results,) = run_navigations(short_timeout_pool, hostile_site, [tls_site], [""])
    tls_site.close()
    assert all("ERR_CERT_AUTHORITY_INVALID" in result for result in results), results
    assert [result.startswith("INFRA") for result in results] == [True, False, False]


def write_certificate(folder: Path) -> str:
    pem_file = folder / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1".split()
    try:
        subprocess.run(
            [*command, "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("needs openssl")
    pem_file.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return str(pem_file)


def test_pending_request_does_not_block_page_or_frame(
    short_timeout_pool: BrowserPool, site: Site, hostile_site: HostileSite
) -> None:
    silent_url = hostile_site.url("silence")
    site.add_page("<button onclick=\"this.textContent = 'Done'\">In</button>", "/in")
    body = f"<img src={silent_url}><iframe src={silent_url}></iframe><iframe src=/in></iframe>"
    with short_timeout_pool.session(origins=[site.origin, hostile_site.origin]) as session:
        session.goto(site.add_page(body))
        assert session.observe().text == "button In [1]"
        assert session.act(Action(ActionKind.CLICK, "1")) is None
        assert session.observe().text == "button Done [1]"


def test_page_that_navigates_again_and_again_settles(
    session: Session, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, calls = injected.call, []

    async def interrupted_call(page: Any, function: str, *arguments: Any, **options: Any) -> Any:
        calls.append(function)
        if calls.count("quiet") <= 3 and function == "quiet":
            raise PlaywrightError("Execution context was destroyed, because of a navigation")
        return await call(page, function, *arguments, **options)

    monkeypatch.setattr(injected, "call", interrupted_call)
    session.goto(site.add_page("<p>loaded</p>"))
    assert calls.count("quiet") == 4
    assert "loaded" in session.observe().text


def test_page_without_scripts_raises_infra_error(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the injection, every evaluation meets a document without the scripts."""
    monkeypatch.setattr(injected, "INIT_SCRIPT", "")

    async def call_on_bare_page(page: Page) -> Any:
        assert page.context.browser is not None
        bare_page = await page.context.browser.new_page()
        try:
            return await injected.call(bare_page, "quiet", 1, 1)
        finally:
            await bare_page.close()

    with pytest.raises(InfraError, match=r"replaced before quiet\(\) ran"):
        session.with_page(call_on_bare_page)


def test_closed_tab_has_an_empty_title(session: Session, site: Site) -> None:
    url = site.add_page("<p>x</p>")

    async def format_closed_tab(page: Page) -> str:
        tab = await page.context.new_page()
        await tab.goto(url)
        await tab.close()
        return await context._format_tab(1, tab, False)

    assert session.with_page(format_closed_tab) == "[tab 1]"


def test_tab_may_close_while_it_navigates(site: Site) -> None:
    site.delays["/never"] = 30
    leave = "location.href = '/never'; setTimeout(() => window.close(), 2500)"
    site.add_page(f'<button onclick="{leave}">Leave</button>', "/tab")
    with (
        BrowserPool(BrowserConfig(settle_timeout=0.5)) as pool,
        pool.session(origins=[site.origin]) as session,
    ):
        session.goto(site.add_page("<a href=/tab target=_blank>Open</a>"))
        for name in ("Open", "Leave"):
            elements = session.observe().elements.items()
            (element_id,) = (i for i, element in elements if element.name == name)
            assert session.act(Action(ActionKind.CLICK, element_id)) is None
        observation = session.observe()
        assert (observation.text, observation.error) == ("link Open [1]", None)


def test_error_in_function_of_caller_is_not_of_page(session: Session, site: Site) -> None:
    session.goto(site.add_page("<p>x</p>"))

    async def fail(page: Page) -> None:
        raise KeyError(page.url)

    with pytest.raises(KeyError, match="http"):
        session.with_page(fail)
