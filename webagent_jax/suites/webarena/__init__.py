"""WebArena's sites, played live: WebArena-Lite, WebArena's 812 tasks, and files of their form."""

from webagent_jax.suites.webarena.suite import WebArena, read

__all__ = ["WebArena", "read"]
