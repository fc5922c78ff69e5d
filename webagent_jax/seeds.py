"""Named random streams: the seed of a run and a stream name determine every random choice."""

from __future__ import annotations

import enum

import numpy as np

from webagent_jax.types import Split

FIRST_TEST_SEED = 1_000_000
"""First seed of generated test tasks; training seeds are below it: the splits are disjoint."""


def task_seeds(num_train: int, num_test: int = 1_000) -> dict[Split, range]:
    """Return the seeds of generated tasks by split.

    Args:
        num_train: number of training tasks per name; seeds from FIRST_TEST_SEED on are excluded.
        num_test: number of test tasks per name.
    """
    return {
        "train": range(min(num_train, FIRST_TEST_SEED)),
        "test": range(FIRST_TEST_SEED, FIRST_TEST_SEED + num_test),
    }


class RandomStream(enum.IntEnum):
    """Random stream of a run. Never renumber: the values make runs reproducible."""

    DEMONSTRATIONS = 1  # training tasks to demonstrate
    BC_ORDER = 2  # order of the demonstrations in an epoch
    TASKS = 3  # training tasks of M-GRPO
    SAMPLING = 4  # tokens of M-GRPO episodes
    EVALUATION = 5  # tokens of evaluation episodes
    ADAPTERS = 6  # initial values of LoRA adapters
    VALIDATION = 7  # validation tasks of BC and M-GRPO, and the tokens of their episodes
    DECISIONS = 8  # turns of demonstrations that measure decision accuracy
    HELD_OUT = 9  # demonstrations excluded from training
    HINDSIGHT = 10  # tasks to relabel failed episodes with
    BC_TURNS = 11  # turns of demonstrations that BC trains on
    MISTAKES = 12  # mistakes of experts


def make_generator(seed: int, stream: RandomStream, *index: int) -> np.random.Generator:
    """Create the generator of one member of a stream."""
    return np.random.default_rng([seed, stream, *index])


def derive_seed(seed: int, stream: RandomStream, *index: int) -> int:
    """Return a seed in [0, 2^31) for one member of a stream.

    Use indices of one length within a stream: an index and the same with a 0 at its end may have
    equal seeds, because NumPy pads with zeros.
    """
    return int(np.random.SeedSequence([seed, stream, *index]).generate_state(1)[0] >> 1)
