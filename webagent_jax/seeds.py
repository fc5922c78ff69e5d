"""Named streams of randomness: every random choice of a run follows from its seed and a name."""

from __future__ import annotations

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What is drawn. Values are part of what makes runs repeatable: never renumber them."""

    DEMONSTRATIONS = 1  # which training tasks are demonstrated
    BC_ORDER = 2  # order of the demonstrations in an epoch
    TASKS = 3  # which tasks M-GRPO plays
    SAMPLING = 4  # tokens of an episode of M-GRPO
    EVALUATION = 5  # tokens of an episode of an evaluation
    ADAPTERS = 6  # first values of adapters (LoRA)
    BC_VALIDATION = 7  # which training tasks cloning is judged on, and the tokens there
    DECISIONS = 8  # which turns of demonstrations measure decision accuracy
    HELD_OUT = 9  # which demonstrations are not trained on


def generator(seed: int, stream: Stream, *index: int) -> np.random.Generator:
    return np.random.default_rng([seed, stream, *index])


def derive(seed: int, stream: Stream, *index: int) -> int:
    """A seed in [0, 2^31) for one member of a stream."""
    return int(np.random.SeedSequence([seed, stream, *index]).generate_state(1)[0] >> 1)
