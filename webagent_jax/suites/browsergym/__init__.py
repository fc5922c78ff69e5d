"""Suite of BrowserGym environments: docs/browsergym.md."""

from webagent_jax.suites.browsergym.suite import BrowserGym, first_tasks

__all__ = ["BrowserGym", "first_tasks"]
