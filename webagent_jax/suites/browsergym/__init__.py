"""Any BrowserGym environment as a suite: docs/browsergym.md."""

from webagent_jax.suites.browsergym.suite import BrowserGym

__all__ = ["BrowserGym"]
