"""Demonstrations: successful episodes, stored as a TensorFlow Datasets directory.

They are stored as text, so that training rows can be built with any tokenizer and template.
"""

from webagent_jax.demos.batching import iterate, make_batches
from webagent_jax.demos.dataset import (
    Demonstrations,
    DemosError,
    WebagentDemos,
    checksum,
    exists,
    merge,
    read,
    write,
)
from webagent_jax.demos.demonstration import (
    Demonstration,
    DemoTurn,
    ends_with_success,
    from_episode,
    has_only_actions,
    is_storable,
    to_episode,
)

__all__ = [
    "DemoTurn",
    "Demonstration",
    "Demonstrations",
    "DemosError",
    "WebagentDemos",
    "checksum",
    "ends_with_success",
    "exists",
    "from_episode",
    "has_only_actions",
    "is_storable",
    "iterate",
    "make_batches",
    "merge",
    "read",
    "to_episode",
    "write",
]
