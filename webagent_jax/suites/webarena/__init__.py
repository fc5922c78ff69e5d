"""Suite on live WebArena sites: WebArena-Lite, WebArena, and other task files in their format."""

from webagent_jax.suites.webarena.suite import WebArena, read

__all__ = ["WebArena", "read"]
