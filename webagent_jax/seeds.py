"""Named random streams: the seed of a run and a stream name determine every random choice."""

from __future__ import annotations

import enum

import numpy as np

from webagent_jax.config import ConfigError
from webagent_jax.types import Split

FIRST_TEST_SEED = 1_000_000
"""First seed of generated test tasks; training seeds are below it: the splits are disjoint."""

_NUM_TEST_SEEDS = 1_000  # test tasks per name


def task_seeds(num_train: int) -> dict[Split, range]:
    """Return the seeds of generated tasks by split.

    Args:
        num_train: number of training tasks per name, `suite.train_seeds_per_task`.

    Raises:
        ConfigError: `num_train` is not between 1 and FIRST_TEST_SEED.
    """
    if not 1 <= num_train <= FIRST_TEST_SEED:
        raise ConfigError(
            f"suite.train_seeds_per_task={num_train} must be between 1 and {FIRST_TEST_SEED}"
        )
    return {
        "train": range(num_train),
        "test": range(FIRST_TEST_SEED, FIRST_TEST_SEED + _NUM_TEST_SEEDS),
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
