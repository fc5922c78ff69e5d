"""Sites that break HTTP, hang or eat memory: each ends as a told error or as INFRA, never stuck.

Every failure is met three ways: as the page that an episode starts at, as one that the agent goes
to by its address, and as one behind a link that it clicks.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.browser.conftest import Site, full_browser
from tests.browser.hostile_site import HostileSite
from webagent_jax.browser import BrowserPool, Session, chromium
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError

pytestmark = pytest.mark.browser

REDIRECTS = "did not load: net::ERR_TOO_MANY_REDIRECTS"
RESET = "did not load: net::ERR_CONNECTION_RESET"
GARBAGE = "did not load: net::ERR_INVALID_HTTP_RESPONSE"
SILENT = "did not answer in 4 s"
CLOSED = "the shop is closed"
BEGUN = "the beginning"

# what is told or seen when the episode starts there, goes there, clicks on a link there
OUTCOMES = {
    "endless-redirect": ("INFRA: ERR_TOO_MANY_REDIRECTS", REDIRECTS, REDIRECTS),
    "endless-headers": ("INFRA: Timeout 4000ms", SILENT, SILENT),
    "dripping-body": ("INFRA: Timeout 4000ms", BEGUN, BEGUN),
    "silence": ("INFRA: Timeout 4000ms", SILENT, SILENT),
    "500": (CLOSED, CLOSED, CLOSED),
    "half-a-body": ("INFRA: Timeout 4000ms", "did not load", "did not load"),
    "garbage": ("INFRA: ERR_INVALID_HTTP_RESPONSE", GARBAGE, GARBAGE),
    "reset": ("INFRA: ERR_CONNECTION_RESET", RESET, RESET),
}
WAYS = ("start", "goto", "click")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(chromium.find_executable, id="found"),
        pytest.param(full_browser, id="full", marks=pytest.mark.slow),
    ],
)
def impatient(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    config = BrowserConfig(
        call_timeout=8.0, navigation_timeout=4.0, settle_timeout=1.0, max_rss_mib=700
    )
    with BrowserPool(config, executable=request.param()) as pool:
        yield pool


@pytest.fixture
def hostile() -> Iterator[HostileSite]:
    site = HostileSite()
    yield site
    site.close()


def outcome(session: Session, way: str, home: str, url: str) -> str:
    """What the agent sees and is told in the end."""
    try:
        session.goto(url if way == "start" else home)
        if way == "start":
            seen = session.observe()
        elif way == "goto":
            seen = session.observe(session.act(Action(ActionKind.GOTO, None, url)))
        else:
            session.evaluate("url => { document.body.innerHTML = `<a href=${url}>Go</a>` }", url)
            assert "1" in session.observe().elements
            seen = session.observe(session.act(Action(ActionKind.CLICK, "1")))
    except InfraError as fault:
        return f"INFRA: {fault}"
    return f"{seen.text} {seen.error or ''}"


def each_way(
    pool: BrowserPool, home: HostileSite, sites: Sequence[HostileSite], paths: Sequence[str]
) -> list[list[str]]:
    """For each address what it ends as in each of WAYS; all at once, for most of it is waiting."""

    def one(url: str, way: str) -> str:
        with pool.session(origins=[home.origin, *(site.origin for site in sites)]) as session:
            return outcome(session, way, home.url(""), url)

    urls = [site.url(path) for site in sites for path in paths]
    with ThreadPoolExecutor(6) as threads:
        return [
            [future.result() for future in row]
            for row in [[threads.submit(one, url, way) for way in WAYS] for url in urls]
        ]


def test_what_a_broken_answer_ends_as(impatient: BrowserPool, hostile: HostileSite) -> None:
    found = each_way(impatient, hostile, [hostile], list(OUTCOMES))
    for path, got_row in zip(OUTCOMES, found, strict=True):
        for way, got, wanted in zip(WAYS, got_row, OUTCOMES[path], strict=True):
            assert wanted.removeprefix("INFRA: ") in got, (path, way)
            assert got.startswith("INFRA") == wanted.startswith("INFRA"), (path, way)


def test_a_script_that_never_ends(impatient: BrowserPool, hostile: HostileSite) -> None:
    (found,) = each_way(impatient, hostile, [hostile], ["hung-script"])
    assert all(got.startswith("INFRA: ") for got in found), found
    with impatient.session(origins=[hostile.origin]) as other:  # the next episode is well
        assert outcome(other, "start", "", hostile.url("")) == "home "


def test_a_page_that_takes_all_memory_is_ended(
    impatient: BrowserPool, hostile: HostileSite
) -> None:
    with impatient.session(origins=[hostile.origin]) as session:
        session.goto(hostile.url("greedy-script"))
        told, deadline = "", time.monotonic() + 120  # a busy machine gives it memory slowly
        while told != "the page crashed" and time.monotonic() < deadline:
            with pytest.raises(InfraError) as fault:
                session.evaluate("new Promise(() => 0)")
            told = str(fault.value)
        assert told == "the page crashed"
    assert impatient.stats().crashes == 0


def test_a_certificate_that_nobody_vouches_for(
    impatient: BrowserPool, hostile: HostileSite, tmp_path: Path
) -> None:
    secure = HostileSite(certificate=self_signed(tmp_path))
    (found,) = each_way(impatient, hostile, [secure], [""])
    secure.close()
    assert all("ERR_CERT_AUTHORITY_INVALID" in got for got in found), found
    assert [got.startswith("INFRA") for got in found] == [True, False, False]


def self_signed(folder: Path) -> str:
    both = folder / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1".split()
    try:
        subprocess.run(
            [*command, "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("needs openssl")
    both.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return str(both)


def test_a_request_that_never_ends_blocks_neither_page_nor_frame(
    impatient: BrowserPool, site: Site, hostile: HostileSite
) -> None:
    silent = hostile.url("silence")
    site.page("<button onclick=\"this.textContent = 'Done'\">In</button>", "/in")
    body = f"<img src={silent}><iframe src={silent}></iframe><iframe src=/in></iframe>"
    with impatient.session(origins=[site.origin, hostile.origin]) as session:
        session.goto(site.page(body))
        assert session.observe().text == "button In [1]"
        assert session.act(Action(ActionKind.CLICK, "1")) is None
        assert session.observe().text == "button Done [1]"
