"""Tests of site addresses, health checks and resets on fake sites."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.suites.webarena_sites import FakeSite, ResetServer
from webagent_jax.config import ConfigError
from webagent_jax.suites.webarena import http, sites
from webagent_jax.suites.webarena.sites import ResetHook
from webagent_jax.types import InfraError


@pytest.fixture
def make_site() -> Iterator[Callable[..., FakeSite]]:
    fake_sites: list[FakeSite] = []

    def make(name: str = "gitlab", **options: object) -> FakeSite:
        fake_sites.append(FakeSite(name, **options))  # type: ignore[arg-type]
        return fake_sites[-1]

    yield make
    for site in fake_sites:
        site.close()


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Return an address that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


# --- addresses ------------------------------------------------------------------------------------


def test_addresses_split_on_whitespace_in_both_variables() -> None:
    environ = {"GITLAB": "http://a:8023/ http://b:8023", "WA_REDDIT": "http://r:9999"}
    assert sites.addresses_from_environment(environ, ["gitlab", "reddit"]) == {
        "gitlab": ("http://a:8023", "http://b:8023"),
        "reddit": ("http://r:9999",),
    }


def test_addresses_are_spelled_as_in_browsers() -> None:
    environ = {
        "GITLAB": "HTTP://Sites.Example:80 https://Sites.Example:443/Git/ http://[::1]:80",
        "REDDIT": "https://sites.example:80",
    }
    assert sites.addresses_from_environment(environ, ["gitlab", "reddit"]) == {
        "gitlab": ("http://sites.example", "https://sites.example/Git", "http://[::1]"),
        "reddit": ("https://sites.example:80",),
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", r"set GITLAB \(or WA_GITLAB\)"),
        ("http://a:8023 b:8023", "'b:8023' must begin with http://"),
        ("http://a:8023 http://a:8023/", "names a replica twice"),
        ("http://a:80 http://A", "names a replica twice"),
    ],
)
def test_invalid_addresses_raise_error(value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sites.addresses_from_environment({"GITLAB": value}, ["gitlab"])


def test_extra_origins_are_grouped_by_site() -> None:
    entries = ["map=tiles.test:8080", "map=.osm.test:443"]
    assert sites.extra_origins(entries) == {"map": ["tiles.test:8080", ".osm.test:443"]}


@pytest.mark.parametrize("entry", ["tiles.test:8080", "maps=tiles.test:8080", "map=http://t:80/"])
def test_invalid_extra_origins_raise_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="extra_origins="):
        sites.extra_origins([entry])


# --- health ---------------------------------------------------------------------------------------


def test_health_error_is_none_for_healthy_site(make_site: Callable[..., FakeSite]) -> None:
    assert sites.health_error("gitlab", make_site().address) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"status": 502}, "responded with 502: it may still be starting"),
        ({"status": 404}, "responded with 404: check GITLAB"),
        ({"redirect_url": "http://elsewhere.test:8023/users"}, "another address: set its base URL"),
    ],
)
def test_health_error_describes_fault(
    make_site: Callable[..., FakeSite], options: dict[str, object], message: str
) -> None:
    address = make_site(**options).address
    error = sites.health_error("gitlab", address)
    assert error and message in error
    assert f"gitlab at {address}" in error


def test_health_error_reports_unreachable_site() -> None:
    error = sites.health_error("map", "http://127.0.0.1:1")
    assert error and "map at http://127.0.0.1:1 does not respond (" in error


def test_health_error_reports_timeout(silent_address: str) -> None:
    error = sites.health_error("map", silent_address, timeout=0.1)
    assert error and "does not respond (timed out)" in error


def test_check_health_reports_all_errors(make_site: Callable[..., FakeSite]) -> None:
    gitlab_addresses = [make_site().address, make_site(status=500).address]
    addresses = {"gitlab": gitlab_addresses, "map": ["http://x.invalid"]}
    with pytest.raises(ConfigError) as error:
        sites.check_health(addresses)
    message = str(error.value)
    assert "responded with 500" in message and "map at http://x.invalid" in message


# --- HTTP -----------------------------------------------------------------------------------------


def test_fetch_does_not_follow_redirect_to_other_site(make_site: Callable[..., FakeSite]) -> None:
    other_site = make_site("reddit")
    response = http.fetch(
        make_site(redirect_url=f"{other_site.base}/about").base,
        timeout=5,
        headers={"Cookie": "secret=1"},
    )
    assert (response.status, response.location) == (302, f"{other_site.base}/about")
    assert other_site.request_paths == []


def test_fetch_follows_redirect_within_site(make_site: Callable[..., FakeSite]) -> None:
    site = make_site()
    response = http.fetch(f"{site.base}/-/profile", timeout=5)
    assert (response.status, response.url) == (200, f"{site.base}/users/sign_in")


def test_json_of_html_response_raises_infra_error(make_site: Callable[..., FakeSite]) -> None:
    with pytest.raises(InfraError, match="did not return JSON"):
        http.fetch(make_site().base, timeout=5).json()


# --- resets ---------------------------------------------------------------------------------------


def test_reset_hook_waits_until_site_is_healthy(
    make_site: Callable[..., FakeSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    site = make_site(failures_after_reset=3, notes=["old"])
    ResetHook("http://{host}:{port}/reset?site={site}", timeout=10.0)([("gitlab", site.address)])
    assert (site.num_resets, site.pending_failures, site.notes) == (1, 0, [])


def test_reset_hook_reports_unhealthy_site(
    make_site: Callable[..., FakeSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    site = make_site(failures_after_reset=10**6)
    with pytest.raises(InfraError, match=r"not healthy 0.1 s after its reset: gitlab at .* 502"):
        ResetHook("http://{host}:{port}/reset", timeout=0.1)([("gitlab", site.address)])


def test_reset_hook_reports_failed_request(make_site: Callable[..., FakeSite]) -> None:
    site = make_site()
    with pytest.raises(InfraError, match=r"gitlab was not reset: .*/nothing responded with 404"):
        ResetHook("http://{host}:{port}/nothing", timeout=1.0)([("gitlab", site.address)])
    with pytest.raises(InfraError, match="does not respond"):
        ResetHook("http://127.0.0.1:1/{site}", timeout=1.0)([("gitlab", site.address)])


@pytest.fixture
def make_reset_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ResetServer]]:
    """Return a factory of servers that respond before the reset ends."""
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    servers: list[ResetServer] = []

    def make(*sites: FakeSite, **options: Any) -> ResetServer:
        servers.append(ResetServer(sites, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def test_reset_hook_polls_status_until_ready(
    make_site: Callable[..., FakeSite], make_reset_server: Callable[..., ResetServer]
) -> None:
    site, other_site = (
        make_site(notes=["old"]),
        make_site("reddit", notes=["old"], failures_after_reset=3),
    )
    server = make_reset_server(site, other_site, polls=3)
    hook = ResetHook(f"{server.base}/reset", 10.0, f"{server.base}/status")
    hook([("gitlab", site.address), ("reddit", other_site.address)])
    assert (site.notes, other_site.notes, site.status, other_site.pending_failures) == (
        [],
        [],
        200,
        0,
    )
    assert server.request_paths == ["/reset"] + ["/status"] * 4


def test_reset_hook_joins_running_reset(
    make_site: Callable[..., FakeSite], make_reset_server: Callable[..., ResetServer]
) -> None:
    site = make_site(notes=["old"])
    server = make_reset_server(site, polls=2)
    http.fetch(f"{server.base}/reset", timeout=5)
    assert http.fetch(f"{server.base}/reset", timeout=5).status == 418
    ResetHook(f"{server.base}/reset", 10.0, f"{server.base}/status")([("gitlab", site.address)])
    assert (site.notes, site.num_resets) == ([], 1)


def test_reset_hook_reports_failed_reset(
    make_site: Callable[..., FakeSite], make_reset_server: Callable[..., ResetServer]
) -> None:
    server = make_reset_server(make_site(), fails=True)
    hook = ResetHook(f"{server.base}/reset", 10.0, f"{server.base}/status")
    with pytest.raises(InfraError, match=r"gitlab was not reset: .*/status responded with 500"):
        hook([("gitlab", "http://127.0.0.1:1")])


def test_reset_hook_reports_reset_timeout(
    make_site: Callable[..., FakeSite], make_reset_server: Callable[..., ResetServer]
) -> None:
    server = make_reset_server(make_site(), polls=10**6)
    hook = ResetHook(f"{server.base}/reset", 0.1, f"{server.base}/status")
    with pytest.raises(
        InfraError, match=r"not reset within 0.1 s: .*/status returns 'Reset ongoing'"
    ):
        hook([("gitlab", "http://127.0.0.1:1")])


def test_reset_hook_requires_status_url_for_async_server(
    make_site: Callable[..., FakeSite], make_reset_server: Callable[..., ResetServer]
) -> None:
    site = make_site()
    server = make_reset_server(site, polls=2)
    for _ in range(2):  # the second request gets 418
        with pytest.raises(InfraError, match=r"set suite\.webarena\.reset_status_url"):
            ResetHook(f"{server.base}/reset", 1.0)([("gitlab", site.address)])


@pytest.mark.parametrize(
    "url", ["http://{hots}/reset", "{host}/reset", "http://{host", "http://{}"]
)
def test_invalid_reset_urls_raise_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"suite\.webarena\.reset_url="):
        ResetHook(url, timeout=1.0)
    with pytest.raises(ConfigError, match=r"suite\.webarena\.reset_status_url="):
        ResetHook("http://{host}/reset", timeout=1.0, status_url=url)
