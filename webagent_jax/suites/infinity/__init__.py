"""WebArena-Infinity: generated single-page apps with tasks and verifiers (docs/infinity.md)."""

from webagent_jax.suites.infinity.suite import Infinity

__all__ = ["Infinity"]
