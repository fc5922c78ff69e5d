"""Addresses, health checks and resets of WebArena's sites."""

from __future__ import annotations

import string
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from webagent_jax.browser.context import checked_origins, origin_of
from webagent_jax.config import ConfigError
from webagent_jax.suites import task_file
from webagent_jax.suites.webarena import http
from webagent_jax.types import InfraError

FIRST_PAGE_TIMEOUT = 180.0  # seconds; Magento takes minutes after a cache flush
_PROBE_PAUSE = 2.0  # seconds between two probes of a starting site
_MAX_CONCURRENT_PROBES = 8
# HTTP statuses of a reset server that responds before the reset is done.
_ACCEPTED, _IN_PROGRESS = 202, 418
_READY_STATUS = "Ready for duty!"  # status text of a reset server after a reset
_HELP = "see third_party/webarena/README.md"

_DEFAULT_PORTS = {"http": 80, "https": 443}

Addresses = Mapping[str, Sequence[str]]
"""Addresses of the replicas of each site."""


def addresses_from_environment(
    environ: Mapping[str, str], required_sites: Collection[str]
) -> Addresses:
    """Return the addresses of the sites in `GITLAB` or `WA_GITLAB`; spaces separate replicas.

    Addresses are spelled as in browsers, because evaluators compare them with those of pages.

    Raises:
        ConfigError: a site has no address, an address is not http or is a duplicate; the message
            says how to fix it.
    """
    variables = task_file.addresses_from_environment(environ, required_sites)
    addresses = {}
    for site in sorted(required_sites):
        entries = variables[site].split()
        for address in entries:
            if origin_of(address) is None:
                raise ConfigError(
                    f"{site.upper()}={variables[site]!r}: {address!r} must begin with http:// or "
                    "https:// (separate several addresses of a site by spaces)"
                )
        addresses[site] = tuple(map(_canonical_address, entries))
        if len(set(addresses[site])) < len(entries):
            raise ConfigError(f"{site.upper()}={variables[site]!r} names a replica twice")
    return addresses


def _canonical_address(address: str) -> str:
    """Return an http address with its host in lower case, without a default port or last slash."""
    parts = urlsplit(address)
    host = parts.netloc.lower()
    if parts.port == _DEFAULT_PORTS[parts.scheme]:
        host = host.removesuffix(f":{parts.port}")
    return parts._replace(netloc=host).geturl().rstrip("/")


def extra_origins(
    entries: Sequence[str], names: Collection[str] = ()
) -> Mapping[str, Sequence[str]]:
    """Parse entries such as `map=tiles.example:8080` into origins by site.

    Args:
        entries: entries of the config.
        names: names of sites besides those of WebArena.

    Raises:
        ConfigError: an entry is malformed or names an unknown site.
    """
    origins: dict[str, list[str]] = {}
    for entry in entries:
        site, _, origin = entry.partition("=")
        try:
            checked_origins([origin])
        except ValueError as error:
            raise ConfigError(f"suite.webarena.extra_origins={entry!r}: {error}") from error
        if site not in task_file.SITES and site not in names:
            raise ConfigError(
                f"suite.webarena.extra_origins={entry!r} must have the form site=host:port, "
                f"with one of the sites {', '.join(dict.fromkeys((*task_file.SITES, *names)))}"
            )
        origins.setdefault(site, []).append(origin)
    return origins


# --- health --------------------------------------------------------------------------------------


def health_error(site: str, address: str, timeout: float = FIRST_PAGE_TIMEOUT) -> str | None:
    """Return the problem of a site and its fix; None if it is healthy.

    Args:
        site: name of the site.
        address: address of the replica.
        timeout: seconds for the response.
    """
    try:
        response = http.fetch(address, timeout=timeout)
    except InfraError as error:
        return (
            f"{site} at {address} does not respond ({error}): check its container and the network; "
            f"{_HELP}"
        )
    # A site configured with another base URL sends the agent to an origin that is not allowed.
    if response.location:
        return (
            f"{site} at {address} redirects to {response.location}, another address: set its base "
            f"URL to the address in {site.upper()}; {_HELP}"
        )
    if response.status >= 500:
        return (
            f"{site} at {address} responded with {response.status}: it may still be starting "
            f"(GitLab takes five minutes); {_HELP}"
        )
    if response.status >= 400:
        return (
            f"{site} at {address} responded with {response.status}: check {site.upper()}; {_HELP}"
        )
    return None


def health_errors(
    addresses: Addresses, timeout: float = FIRST_PAGE_TIMEOUT
) -> list[tuple[str, str, str | None]]:
    """Return site, address and `health_error` of every replica."""
    pairs = [(site, address) for site, replicas in addresses.items() for address in replicas]
    with ThreadPoolExecutor(_MAX_CONCURRENT_PROBES) as executor:
        errors = executor.map(lambda pair: health_error(pair[0], pair[1], timeout), pairs)
        return [(*pair, error) for pair, error in zip(pairs, errors, strict=True)]


def check_health(addresses: Addresses) -> None:
    """Check the health of every replica of every site.

    Raises:
        ConfigError: some are not healthy; the message contains all problems.
    """
    problems = [error for _, _, error in health_errors(addresses) if error]
    if problems:
        raise ConfigError("\n".join(problems))


# --- reset ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResetHook:
    """Client of a server that restores the initial state of replicas.

    Some servers respond after the reset, such as third_party/webarena/serve_resets.py. Others
    respond immediately and have a status to poll, such as the server of BrowserGym's setup scripts:
    200 if the reset starts, 418 if one is in progress, and the status text `Ready for duty!`.

    Args:
        url: address whose GET starts a reset; may contain {site}, {host} and {port} of the replica.
        timeout: seconds for the complete reset, including the start of the sites.
        status_url: address whose GET returns the status, with the same fields; empty if `url`
            responds after the reset.
    """

    url: str
    timeout: float
    status_url: str = ""

    def __post_init__(self) -> None:
        _check_template("reset_url", self.url)
        if self.status_url:
            _check_template("reset_status_url", self.status_url)

    def url_of(self, site: str, address: str) -> str:
        """Return the address that resets a replica, together with replicas of equal address."""
        return _fill_template(self.url, site, address)

    def __call__(self, replicas: Sequence[tuple[str, str]]) -> None:
        """Reset the replicas of one server, and return when all of them are healthy.

        Args:
            replicas: site and address of each; `url_of` must be equal for all of them.

        Raises:
            InfraError: the reset failed, or a site is not healthy in time.
        """
        # 1. Request the reset. 2. Wait for its status. 3. Wait until all replicas are healthy.
        end = time.monotonic() + self.timeout
        site, address = replicas[0]
        self._request_reset(site, self.url_of(site, address))
        if self.status_url:
            self._wait_for_status(site, _fill_template(self.status_url, site, address), end)
        for site, address in replicas:
            while problem := health_error(site, address, max(end - time.monotonic(), 1.0)):
                if time.monotonic() + _PROBE_PAUSE > end:
                    raise InfraError(f"not healthy {self.timeout:g} s after its reset: {problem}")
                time.sleep(_PROBE_PAUSE)

    def _request_reset(self, site: str, url: str) -> None:
        try:
            response = http.fetch(url, timeout=self.timeout)
        except InfraError as error:
            raise InfraError(f"{site} was not reset: {url} does not respond ({error})") from error
        # Resets run between episodes, so a reset in progress began after the previous episode.
        if response.status == _IN_PROGRESS and self.status_url:
            return
        # These responses come before the reset is done, so a status address is required.
        if response.status in (_ACCEPTED, _IN_PROGRESS) or response.text.startswith(
            "Reset initiated"
        ):
            if not self.status_url:
                raise InfraError(
                    f"{site} was not reset: {url} responds before the reset is done: set "
                    "suite.webarena.reset_status_url to the address of its status"
                )
        elif response.status >= 300:
            raise InfraError(f"{site} was not reset: {url} responded with {response.status}")

    def _wait_for_status(self, site: str, url: str, end: float) -> None:
        while True:
            status = "no response"
            try:
                response = http.fetch(url, timeout=max(end - time.monotonic(), 1.0))
            except InfraError as error:
                # The server may not respond during the reset, so the request is repeated.
                status = str(error)
            else:
                if response.status >= 300:
                    raise InfraError(
                        f"{site} was not reset: {url} responded with {response.status}"
                    )
                status = response.text.strip()
                if status == _READY_STATUS:
                    return
            if time.monotonic() + _PROBE_PAUSE > end:
                raise InfraError(
                    f"{site} was not reset within {self.timeout:g} s: {url} returns "
                    f"{status[:100]!r}"
                )
            time.sleep(_PROBE_PAUSE)


def _check_template(option: str, url: str) -> None:
    try:
        # `Formatter.parse` returns None as the name for text after the last field.
        fields = {name for _, name, _, _ in string.Formatter().parse(url)} - {None}
    except ValueError as error:
        raise ConfigError(f"suite.webarena.{option}={url!r}: {error}") from error
    if not fields <= {"site", "host", "port"} or not url.startswith("http"):
        raise ConfigError(
            f"suite.webarena.{option}={url!r} must be an http address, "
            "with no other fields than {site}, {host} and {port}"
        )


def _fill_template(template: str, site: str, address: str) -> str:
    host, _, port = (origin_of(address) or "").rpartition(":")
    return template.format(site=site, host=host, port=port)
