"""Addresses, health and resets of sites, on small sites that fail as told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.suites.webarena_sites import ResetServer, StandIn
from webagent_jax.config import ConfigError
from webagent_jax.suites.webarena import http, sites
from webagent_jax.suites.webarena.sites import ResetHook
from webagent_jax.types import InfraError


@pytest.fixture
def stand_in() -> Iterator[Callable[..., StandIn]]:
    made: list[StandIn] = []

    def make(name: str = "gitlab", **options: object) -> StandIn:
        made.append(StandIn(name, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


# --- addresses ------------------------------------------------------------------------------------


def test_replicas_are_parted_by_blanks_in_either_spelling() -> None:
    environ = {"GITLAB": "http://a:8023/ http://b:8023", "WA_REDDIT": "http://r:9999"}
    assert sites.addresses_from_environment(environ, ["gitlab", "reddit"]) == {
        "gitlab": ("http://a:8023", "http://b:8023"),
        "reddit": ("http://r:9999",),
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", r"set GITLAB \(or WA_GITLAB\)"),
        ("http://a:8023 b:8023", "'b:8023' must begin with http://"),
        ("http://a:8023 http://a:8023/", "names a replica twice"),
    ],
)
def test_addresses_that_cannot_work_are_refused(value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sites.addresses_from_environment({"GITLAB": value}, ["gitlab"])


def test_extra_origins_are_by_site() -> None:
    listed = ["map=tiles.test:8080", "map=.osm.test:443"]
    assert sites.extra_origins(listed) == {"map": ["tiles.test:8080", ".osm.test:443"]}


@pytest.mark.parametrize("entry", ["tiles.test:8080", "maps=tiles.test:8080", "map=http://t:80/"])
def test_bad_extra_origins_are_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="extra_origins="):
        sites.extra_origins([entry])


# --- health ---------------------------------------------------------------------------------------


def test_a_site_that_is_well(stand_in: Callable[..., StandIn]) -> None:
    assert sites.health_error("gitlab", stand_in().address) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"status": 502}, "answered 502: it may still be starting"),
        ({"status": 404}, "answered 404: check GITLAB"),
        ({"sends_on_to": "http://elsewhere.test:8023/users"}, "another address: set its base URL"),
    ],
)
def test_a_site_that_is_not_well(
    stand_in: Callable[..., StandIn], options: dict[str, object], message: str
) -> None:
    address = stand_in(**options).address
    trouble = sites.health_error("gitlab", address)
    assert trouble and message in trouble
    assert f"gitlab at {address}" in trouble


def test_a_site_that_is_not_there() -> None:
    trouble = sites.health_error("map", "http://127.0.0.1:1")
    assert trouble and "map at http://127.0.0.1:1 does not respond (" in trouble


def test_a_site_that_never_answers(nobody: str) -> None:
    trouble = sites.health_error("map", nobody, timeout=0.1)
    assert trouble and "does not respond (timed out)" in trouble


def test_all_that_is_wrong_is_told_at_once(stand_in: Callable[..., StandIn]) -> None:
    gitlabs = [stand_in().address, stand_in(status=500).address]
    addresses = {"gitlab": gitlabs, "map": ["http://x.invalid"]}
    with pytest.raises(ConfigError) as told:
        sites.check_health(addresses)
    assert "answered 500" in str(told.value) and "map at http://x.invalid" in str(told.value)


# --- HTTP -----------------------------------------------------------------------------------------


def test_cookies_do_not_leave_the_site(stand_in: Callable[..., StandIn]) -> None:
    elsewhere = stand_in("reddit")
    reply = http.fetch(
        stand_in(sends_on_to=f"{elsewhere.base}/about").base,
        timeout=5,
        headers={"Cookie": "secret=1"},
    )
    assert (reply.status, reply.location) == (302, f"{elsewhere.base}/about")
    assert elsewhere.asked == []


def test_redirects_on_the_site_are_followed(stand_in: Callable[..., StandIn]) -> None:
    site = stand_in()
    reply = http.fetch(f"{site.base}/-/profile", timeout=5)
    assert (reply.status, reply.url) == (200, f"{site.base}/users/sign_in")


def test_what_is_no_json_is_a_fault(stand_in: Callable[..., StandIn]) -> None:
    with pytest.raises(InfraError, match="did not return JSON"):
        http.fetch(stand_in().base, timeout=5).json()


# --- resets ---------------------------------------------------------------------------------------


def test_a_reset_waits_until_the_site_is_well(
    stand_in: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    site = stand_in(unwell_after_reset=3, notes=["old"])
    ResetHook("http://{host}:{port}/reset?site={site}", timeout=10.0)([("gitlab", site.address)])
    assert (site.resets, site.unwell, site.notes) == (1, 0, [])


def test_a_site_that_does_not_recover_is_a_fault(
    stand_in: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    site = stand_in(unwell_after_reset=10**6)
    with pytest.raises(InfraError, match=r"not healthy 0.1 s after its reset: gitlab at .* 502"):
        ResetHook("http://{host}:{port}/reset", timeout=0.1)([("gitlab", site.address)])


def test_a_hook_that_fails_is_a_fault(stand_in: Callable[..., StandIn]) -> None:
    site = stand_in()
    with pytest.raises(InfraError, match=r"gitlab was not reset: .*/nothing answered 404"):
        ResetHook("http://{host}:{port}/nothing", timeout=1.0)([("gitlab", site.address)])
    with pytest.raises(InfraError, match="does not respond"):
        ResetHook("http://127.0.0.1:1/{site}", timeout=1.0)([("gitlab", site.address)])


@pytest.fixture
def reset_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ResetServer]]:
    """Makes servers that answer before the reset is done."""
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    made: list[ResetServer] = []

    def make(*sites: StandIn, **options: Any) -> ResetServer:
        made.append(ResetServer(sites, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


def test_reset_hook_polls_the_status_of_a_server_that_answers_at_once(
    stand_in: Callable[..., StandIn], reset_server: Callable[..., ResetServer]
) -> None:
    site, other = stand_in(notes=["old"]), stand_in("reddit", notes=["old"], unwell_after_reset=3)
    server = reset_server(site, other, polls=3)
    hook = ResetHook(f"{server.base}/reset", 10.0, f"{server.base}/status")
    hook([("gitlab", site.address), ("reddit", other.address)])
    assert (site.notes, other.notes, site.status, other.unwell) == ([], [], 200, 0)
    assert server.asked == ["/reset"] + ["/status"] * 4


def test_reset_hook_joins_a_reset_that_is_under_way(
    stand_in: Callable[..., StandIn], reset_server: Callable[..., ResetServer]
) -> None:
    site = stand_in(notes=["old"])
    server = reset_server(site, polls=2)
    http.fetch(f"{server.base}/reset", timeout=5)
    assert http.fetch(f"{server.base}/reset", timeout=5).status == 418
    ResetHook(f"{server.base}/reset", 10.0, f"{server.base}/status")([("gitlab", site.address)])
    assert (site.notes, site.resets) == ([], 1)


def test_reset_hook_reports_a_reset_that_failed(
    stand_in: Callable[..., StandIn], reset_server: Callable[..., ResetServer]
) -> None:
    server = reset_server(stand_in(), fails=True)
    hook = ResetHook(f"{server.base}/reset", 10.0, f"{server.base}/status")
    with pytest.raises(InfraError, match=r"gitlab was not reset: .*/status answered 500"):
        hook([("gitlab", "http://127.0.0.1:1")])


def test_reset_hook_reports_a_reset_that_does_not_end(
    stand_in: Callable[..., StandIn], reset_server: Callable[..., ResetServer]
) -> None:
    server = reset_server(stand_in(), polls=10**6)
    hook = ResetHook(f"{server.base}/reset", 0.1, f"{server.base}/status")
    with pytest.raises(
        InfraError, match=r"not reset within 0.1 s: .*/status returns 'Reset ongoing'"
    ):
        hook([("gitlab", "http://127.0.0.1:1")])


def test_reset_hook_without_status_refuses_a_server_that_answers_at_once(
    stand_in: Callable[..., StandIn], reset_server: Callable[..., ResetServer]
) -> None:
    site = stand_in()
    server = reset_server(site, polls=2)
    for _ in range(2):  # the second is answered 418
        with pytest.raises(InfraError, match=r"set suite\.webarena\.reset_status_url"):
            ResetHook(f"{server.base}/reset", 1.0)([("gitlab", site.address)])


@pytest.mark.parametrize(
    "url", ["http://{hots}/reset", "{host}/reset", "http://{host", "http://{}"]
)
def test_bad_reset_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"suite\.webarena\.reset_url="):
        ResetHook(url, timeout=1.0)
    with pytest.raises(ConfigError, match=r"suite\.webarena\.reset_status_url="):
        ResetHook("http://{host}/reset", timeout=1.0, status_url=url)
