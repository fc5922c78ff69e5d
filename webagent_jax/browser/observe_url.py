"""Observation of one page without an episode."""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.browser.context import origin_of
from webagent_jax.browser.pool import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Observation


def observe_url(config: BrowserConfig, url: str, origins: Sequence[str] = ()) -> Observation:
    """Return the observation that an agent receives at `url`.

    Args:
        config: browser settings.
        url: http address of the page.
        origins: further origins that the page may load from, "host:port".

    Raises:
        ValueError: `url` is not an http address.
        InfraError: the page does not load.
        chromium.ChromiumMissingError: there is no Chromium.
    """
    origin = origin_of(url)
    if origin is None:
        raise ValueError(f"{url!r} is not an http address such as http://127.0.0.1:8000/page")
    with BrowserPool(config) as pool, pool.session(origins=[origin, *origins]) as session:
        session.goto(url)
        return session.observe()
