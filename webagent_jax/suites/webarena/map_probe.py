"""Check of a map's tile server and route server, which its pages call from the browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError
from webagent_jax.types import InfraError

_TIMEOUT = 30.0  # seconds to load tiles and a route
_POLL_INTERVAL = 0.25  # seconds

# Route in Pittsburgh, the city of the tasks, in the URL format of OpenStreetMap's website.
_ROUTE_PATH = "/directions?engine=fossgis_osrm_car&route=40.4432%2C-79.9428%3B40.4406%2C-79.9959"

# Leaflet's tiles and requests for routes to OSRM: [address, is complete, is successful] of each.
_REQUESTS_SCRIPT = """
() => ({
  tiles: [...document.querySelectorAll("img.leaflet-tile")].map(
    (tile) => [tile.src, tile.complete, tile.complete && tile.naturalWidth > 0],
  ),
  routes: performance.getEntriesByType("resource")
    .filter((entry) => entry.name.includes("/route/v1/"))
    .map((entry) => [entry.name, true, entry.responseStatus >= 200 && entry.responseStatus < 400]),
})
"""


def check(
    pool: BrowserPool, address: str, extra_origins: Sequence[str], log: Callable[[str], None]
) -> None:
    """Open a route on a map and wait for its tiles and directions.

    If the page requests no tiles or no route, as in other versions of the map, this is logged.

    Args:
        pool: browsers.
        address: address of the map.
        extra_origins: origins of the tile and route servers.
        log: receives messages for users.

    Raises:
        ConfigError: tiles or the route do not load; the message contains the server and the fix.
    """
    origins = [origin_of(address) or "", *extra_origins]
    try:
        with pool.session(origins=origins) as session:
            session.goto(f"{address}{_ROUTE_PATH}")
            requests_by_kind = _wait_for_requests(session)
    except InfraError as error:
        raise ConfigError(f"map at {address} does not load in the browser: {error}") from error
    errors = []
    for kind, requests in requests_by_kind.items():
        if not requests:
            log(
                f"map at {address} requests no {kind} at {_ROUTE_PATH}: their server is not checked"
            )
        elif not any(has_loaded for _, _, has_loaded in requests):
            # None has loaded. One would be enough: single tiles may fail on a server that works.
            servers = {origin_of(url) or url[:200] for url, _, _ in requests}
            errors += [_format_error(address, kind, server, origins) for server in sorted(servers)]
    if errors:
        raise ConfigError("\n".join(errors))


def _wait_for_requests(session: Session) -> Mapping[str, Any]:
    """Return the requests of both kinds once they are settled or the timeout has passed."""
    end = time.monotonic() + _TIMEOUT
    while True:
        requests: Mapping[str, Any] = session.evaluate(_REQUESTS_SCRIPT)
        if all(map(_is_settled, requests.values())) or time.monotonic() > end:
            return requests
        time.sleep(_POLL_INTERVAL)


def _is_settled(requests: Sequence[tuple[str, bool, bool]]) -> bool:
    """Return whether a request has succeeded, or all are complete."""
    has_loaded = any(has_loaded for _, _, has_loaded in requests)
    return has_loaded or (bool(requests) and all(is_complete for _, is_complete, _ in requests))


def _format_error(address: str, kind: str, server: str, origins: Sequence[str]) -> str:
    problem = f"map at {address} gets no {kind} from {server}"
    if any(server.endswith(o) if o.startswith(".") else server == o for o in origins):
        return f"{problem}: check that server, see docs/webarena.md"
    return f"{problem}, which is not allowed: set suite.webarena.extra_origins=map={server}"
