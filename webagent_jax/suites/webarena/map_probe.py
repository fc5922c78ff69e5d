"""Check of the tile server and the router of a map, which its pages call from the browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError
from webagent_jax.types import InfraError

_PATIENCE = 30.0  # seconds until tiles and a route must have arrived
_PAUSE = 0.25  # seconds between two looks at the page

# A route through Pittsburgh, where the tasks are, in the address form of OpenStreetMap's web site.
_PAGE = "/directions?engine=fossgis_osrm_car&route=40.4432%2C-79.9428%3B40.4406%2C-79.9959"

# Tiles as Leaflet shows them, routes as OSRM is asked for them: [address, done, arrived].
_LOADED = """
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

    A page that asks for no tiles or no route is logged, as another version of the map may.

    Raises:
        ConfigError: tiles or the route do not arrive; says from where, and how to fix it.
    """
    origins = [origin_of(address) or "", *extra_origins]
    try:
        with pool.session(origins=origins) as session:
            session.goto(f"{address}{_PAGE}")
            loaded = _wait(session)
    except InfraError as error:
        raise ConfigError(f"map at {address} does not load in the browser: {error}") from error
    wrong = []
    for kind, requests in loaded.items():
        if not requests:
            log(f"map at {address} asks for no {kind} at {_PAGE}: their server is not checked")
        elif not any(arrived for _, _, arrived in requests):
            servers = {origin_of(url) or url[:200] for url, _, _ in requests}
            wrong += [_advice(address, kind, server, origins) for server in sorted(servers)]
    if wrong:
        raise ConfigError("\n".join(wrong))


def _wait(session: Session) -> Mapping[str, Any]:
    """Return the requests of both kinds, when all is decided or time is up."""
    end = time.monotonic() + _PATIENCE
    while True:
        loaded: Mapping[str, Any] = session.evaluate(_LOADED)
        if all(map(_is_decided, loaded.values())) or time.monotonic() > end:
            return loaded
        time.sleep(_PAUSE)


def _is_decided(requests: Sequence[tuple[str, bool, bool]]) -> bool:
    arrived = any(arrived for _, _, arrived in requests)
    return arrived or (bool(requests) and all(done for _, done, _ in requests))


def _advice(address: str, kind: str, server: str, origins: Sequence[str]) -> str:
    start = f"map at {address} gets no {kind} from {server}"
    if any(server.endswith(o) if o.startswith(".") else server == o for o in origins):
        return f"{start}: is that server up? see docs/webarena.md"
    return f"{start}, which is not allowed: set suite.webarena.extra_origins=map={server}"
