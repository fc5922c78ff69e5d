"""Where the sites are, whether they are well, and how they are made anew."""

from __future__ import annotations

import string
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from webagent_jax.browser.context import checked_origins, origin_of
from webagent_jax.config import ConfigError
from webagent_jax.suites import task_file
from webagent_jax.suites.webarena import http
from webagent_jax.types import InfraError

FIRST_PAGE_TIMEOUT = 180.0  # seconds; Magento takes minutes after its cache was flushed
_PROBE_PAUSE = 2.0  # seconds between two probes of a site that starts
_PROBES_AT_ONCE = 8
_ACCEPTED, _RESETTING = 202, 418  # answers of a reset server
_READY = "Ready for duty!"  # its status after a reset
_HELP = "see third_party/webarena/README.md"

Addresses = Mapping[str, Sequence[str]]
"""The replicas of each site."""


def addresses_from_environment(environ: Mapping[str, str], needed: Collection[str]) -> Addresses:
    """Of the needed sites, as `GITLAB` or `WA_GITLAB`; replicas of a site are parted by blanks.

    Raises:
        ConfigError: a site is not set, is no http address or is told twice; says how to mend it.
    """
    told = task_file.addresses_from_environment(environ, needed)
    addresses = {site: tuple(a.rstrip("/") for a in told[site].split()) for site in sorted(needed)}
    for site, replicas in addresses.items():
        for address in replicas:
            if origin_of(address) is None:
                raise ConfigError(
                    f"{site.upper()}={told[site]!r}: {address!r} must begin with http:// or "
                    "https:// (several addresses of a site are parted by blanks)"
                )
        if len(set(replicas)) < len(replicas):
            raise ConfigError(f"{site.upper()}={told[site]!r} names a replica twice")
    return addresses


def extra_origins(listed: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """By site, from entries such as `map=tiles.example:8080`. Raises ConfigError."""
    origins: dict[str, list[str]] = {}
    for entry in listed:
        site, _, origin = entry.partition("=")
        try:
            checked_origins([origin])
        except ValueError as error:
            raise ConfigError(f"suite.webarena.extra_origins={entry!r}: {error}") from error
        if site not in task_file.SITES:
            raise ConfigError(
                f"suite.webarena.extra_origins={entry!r} must read site=host:port, "
                f"the site among: {', '.join(task_file.SITES)}"
            )
        origins.setdefault(site, []).append(origin)
    return origins


# --- health --------------------------------------------------------------------------------------


def trouble(site: str, address: str, timeout: float = FIRST_PAGE_TIMEOUT) -> str | None:
    """What is wrong with a site and how to mend it; None when it is well."""
    try:
        reply = http.fetch(address, timeout=timeout)
    except InfraError as error:
        return (
            f"{site} at {address} does not answer ({error}): is its container up, and can this "
            f"machine reach it? {_HELP}"
        )
    if reply.location:
        return (
            f"{site} at {address} sends on to {reply.location}, another address: give it the one "
            f"you set as {site.upper()} for its base URL; {_HELP}"
        )
    if reply.status >= 500:
        return (
            f"{site} at {address} answered {reply.status}: it may still be starting (GitLab takes "
            f"five minutes); {_HELP}"
        )
    if reply.status >= 400:
        return f"{site} at {address} answered {reply.status}: is {site.upper()} right? {_HELP}"
    return None


def check(addresses: Addresses) -> None:
    """Asks every replica of every site. Raises ConfigError with all that is wrong."""
    pairs = [(site, address) for site, replicas in addresses.items() for address in replicas]
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as threads:
        found = threads.map(lambda pair: trouble(*pair), pairs)
        wrong = [each for each in found if each]
    if wrong:
        raise ConfigError("\n".join(wrong))


# --- reset ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResetHook:
    """Client of a server that brings replicas back to their first state.

    Some servers answer when the reset is done, such as third_party/webarena/serve_resets.py.
    Others answer at once and have a status to poll, such as the one of BrowserGym's set-up scripts:
    200 when the reset begins, 418 when one is under way already, and `Ready for duty!` as status.

    Args:
        url: GET starts a reset; with {site}, {host} and {port} for those of the replica.
        timeout: seconds for all of it, the start of the sites included.
        status_url: GET returns the status, same fields; empty when `url` answers after the reset.
    """

    url: str
    timeout: float
    status_url: str = ""

    def __post_init__(self) -> None:
        _check_template("reset_url", self.url)
        if self.status_url:
            _check_template("reset_status_url", self.status_url)

    def url_of(self, site: str, address: str) -> str:
        """Return the address that resets a replica, and all others that have the same."""
        return _filled(self.url, site, address)

    def __call__(self, replicas: Sequence[tuple[str, str]]) -> None:
        """Reset the replicas of one server, and return when all of them are well again.

        Args:
            replicas: site and address of each; `url_of` is the same for all of them.

        Raises:
            InfraError: the reset failed, or a site is not well in time.
        """
        end = time.monotonic() + self.timeout
        site, address = replicas[0]
        self._start(site, self.url_of(site, address))
        if self.status_url:
            self._wait_for_status(site, _filled(self.status_url, site, address), end)
        for site, address in replicas:
            while wrong := trouble(site, address, max(end - time.monotonic(), 1.0)):
                if time.monotonic() + _PROBE_PAUSE > end:
                    raise InfraError(f"not well {self.timeout:g} s after its reset: {wrong}")
                time.sleep(_PROBE_PAUSE)

    def _start(self, site: str, url: str) -> None:
        try:
            reply = http.fetch(url, timeout=self.timeout)
        except InfraError as error:
            raise InfraError(f"{site} was not reset: {url} does not answer ({error})") from error
        # Replicas are reset before their next episode, so a reset under way began after the last.
        if reply.status == _RESETTING and self.status_url:
            return
        if reply.status in (_ACCEPTED, _RESETTING) or reply.text.startswith("Reset initiated"):
            if not self.status_url:
                raise InfraError(
                    f"{site} was not reset: {url} answers before the reset is done: set "
                    "suite.webarena.reset_status_url to the address of its status"
                )
        elif reply.status >= 300:
            raise InfraError(f"{site} was not reset: {url} answered {reply.status}")

    def _wait_for_status(self, site: str, url: str, end: float) -> None:
        while True:
            status = "no answer"
            try:
                reply = http.fetch(url, timeout=max(end - time.monotonic(), 1.0))
            except InfraError as error:
                status = str(error)
            else:
                if reply.status >= 300:
                    raise InfraError(f"{site} was not reset: {url} answered {reply.status}")
                status = reply.text.strip()
                if status == _READY:
                    return
            if time.monotonic() + _PROBE_PAUSE > end:
                raise InfraError(
                    f"{site} was not reset within {self.timeout:g} s: {url} says {status[:100]!r}"
                )
            time.sleep(_PROBE_PAUSE)


def _check_template(option: str, url: str) -> None:
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(url)} - {None}
    except ValueError as error:
        raise ConfigError(f"suite.webarena.{option}={url!r}: {error}") from error
    if not fields <= {"site", "host", "port"} or not url.startswith("http"):
        raise ConfigError(
            f"suite.webarena.{option}={url!r} must be an http address, "
            "with {site}, {host} and {port} where they belong"
        )


def _filled(template: str, site: str, address: str) -> str:
    host, _, port = (origin_of(address) or "").rpartition(":")
    return template.format(site=site, host=host, port=port)
