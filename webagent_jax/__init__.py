"""WebAgent-R1 in JAX: end-to-end multi-turn reinforcement learning of web agents."""

__version__ = "0.1.0"
