"""WebAgent-R1 in JAX: end-to-end multi-turn reinforcement learning for web agents."""

from webagent_jax import xla_flags

__version__ = "0.2.0"

xla_flags.disable_ynn_reduce()
