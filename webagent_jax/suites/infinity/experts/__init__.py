"""Scripted experts of some tasks: their demonstrations teach a policy the apps."""

from webagent_jax.suites.infinity.experts.solutions import SOLUTIONS
from webagent_jax.suites.infinity.experts.steps import solve

__all__ = ["SOLUTIONS", "solve"]
