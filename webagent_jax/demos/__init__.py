"""Demonstrations: episodes worth imitating, kept as a TensorFlow Datasets directory.

They are text, so that any tokenizer and template can make training rows of them.
"""

from webagent_jax.demos.batching import batches, iterate
from webagent_jax.demos.dataset import (
    Demonstrations,
    DemosError,
    WebagentDemos,
    exists,
    read,
    write,
)
from webagent_jax.demos.demonstration import Demonstration, DemoTurn, from_episode, to_episode

__all__ = [
    "DemoTurn",
    "Demonstration",
    "Demonstrations",
    "DemosError",
    "WebagentDemos",
    "batches",
    "exists",
    "from_episode",
    "iterate",
    "read",
    "to_episode",
    "write",
]
