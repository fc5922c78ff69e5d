"""One look at one page, without an episode around it."""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.browser.context import origin_of
from webagent_jax.browser.pool import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Observation


def look(config: BrowserConfig, url: str, origins: Sequence[str] = ()) -> Observation:
    """What an agent would see at `url`; the page may load from `origins` ("host:port") as well.

    Raises ValueError for what is no http address, InfraError for a page that does not come, and
    chromium.ChromiumMissing.
    """
    here = origin_of(url)
    if here is None:
        raise ValueError(f"{url!r} is no http address, such as http://127.0.0.1:8000/page")
    with BrowserPool(config) as pool, pool.session(origins=[here, *origins]) as session:
        session.goto(url)
        return session.observe()
