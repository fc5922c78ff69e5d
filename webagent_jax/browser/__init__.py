"""Chromium pool, observations and actions; the only package that imports Playwright."""

from webagent_jax.browser.chromium import ChromiumMissingError
from webagent_jax.browser.pool import BrowserPool, PoolStats
from webagent_jax.browser.session import Session

__all__ = ["BrowserPool", "ChromiumMissingError", "PoolStats", "Session"]
