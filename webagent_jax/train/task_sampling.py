"""Tasks of the groups of a run: in passes over all task names, or by recent success."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from webagent_jax import distributed, seeds
from webagent_jax.config import RunConfig
from webagent_jax.seeds import RandomStream
from webagent_jax.types import Episode, Suite, Task

Float64Array = npt.NDArray[np.float64]


# Factor of all counts per update: they cover about the last three updates.
_DECAY = 0.7
# Multiples of the golden ratio modulo 1 are evenly spread over [0, 1), for any number of them.
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class TaskSampler:
    """Source of the task of each group of a run.

    Suites generate tasks by name and seed. With `grpo.task_sampling=uniform`, the names come in
    passes over all of them, reshuffled in each pass. With `adaptive`, a name comes in proportion to
    its `learning_weights`. Each group gets a random seed of its name.

    A task depends on the index of its group and, if adaptive, on the outcomes of earlier updates;
    so retries and resumed runs repeat it.

    Args:
        cfg: of the run.
        suite: suite of the tasks.
        saved: `state` of the interrupted run; empty at the start of a run.
    """

    def __init__(self, cfg: RunConfig, suite: Suite, saved: Mapping[str, Any]) -> None:
        self._cfg, self._suite = cfg, suite
        self._names = list(suite.task_names("train"))
        # [names, 2]: successes and failures of recent updates.
        counts = saved.get("counts", {})
        self._counts = np.asarray([counts.get(name, (0.0, 0.0)) for name in self._names])
        # Names of the groups that no update has recorded, by index. Kept only if adaptive.
        self._scheduled = {int(i): name for i, name in saved.get("scheduled", ())}

    def task(self, index: int) -> Task:
        """Return the task of the group at `index` in the task stream of the run."""
        if self._cfg.grpo.task_sampling == "uniform":
            return _uniform_task(self._cfg, self._suite, self._names, index)
        name = self._scheduled.setdefault(index, self._draw_name(index))
        task_seed = seeds.make_generator(self._cfg.seed, RandomStream.TASKS, index)
        num_seeds = self._cfg.suite.train_seeds_per_task
        return self._suite.task(name, "train", int(task_seed.integers(num_seeds)))

    def record(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Count the outcomes of an update, and return metrics; a collective call if adaptive.

        Args:
            episodes: all episodes of complete groups that this process collected for the update.
        """
        if self._cfg.grpo.task_sampling == "uniform":
            return {}
        by_name: dict[str, list[float]] = {}
        for episode in episodes:
            counts = by_name.setdefault(self._scheduled[episode.group], [0.0, 0.0])
            if episode.reward is not None:
                counts[0] += episode.reward
                counts[1] += 1 - episode.reward
        for index in {episode.group for episode in episodes}:
            del self._scheduled[index]
        self._counts *= _DECAY
        # All processes add the same counts, so their weights stay equal.
        for process in distributed.allgather(by_name):
            for name, counts in process.items():
                self._counts[self._names.index(name)] += counts
        share = self._shares()
        return {"tasks/effective_number": float(np.exp(-np.sum(share * np.log(share))))}

    def state(self) -> dict[str, Any]:
        """Return the state of all processes for a checkpoint; a collective call if adaptive."""
        if self._cfg.grpo.task_sampling == "uniform":
            return {}
        scheduled = distributed.allgather(sorted(self._scheduled.items()))
        return {
            "counts": dict(zip(self._names, self._counts.tolist(), strict=True)),
            "scheduled": [pair for process in scheduled for pair in process],
        }

    def _shares(self) -> Float64Array:
        """Return the expected share of each name in the next groups."""
        weights = learning_weights(self._counts[:, 0], self._counts[:, 1])
        return weights / weights.sum()

    def _draw_name(self, index: int) -> str:
        offset = seeds.make_generator(self._cfg.seed, RandomStream.TASKS).random()
        point = (offset + index * _GOLDEN_RATIO) % 1.0
        number = int(np.searchsorted(np.cumsum(self._shares()), point, side="right"))
        # The sum of the shares may be slightly below 1.
        return self._names[min(number, len(self._names) - 1)]


def learning_weights(successes: Float64Array, failures: Float64Array) -> Float64Array:
    """Return the expected variance of the reward, E[p (1 - p)], of each task.

    p has the Beta(1 + successes, 1 + failures) distribution, the posterior of a uniform prior.
    The policy gradient of a group vanishes if all rewards are equal, and p (1 - p) is the variance
    of a reward. A task without counts has the weight 1/6, and p = 1/2 the highest, below 1/4. A
    weight is never 0, and counts decay, so that every task returns.

    Args:
        successes: [n], not negative.
        failures: [n], not negative.

    Returns:
        [n], above 0.
    """
    a, b = 1 + successes, 1 + failures
    return a * b / ((a + b) * (a + b + 1))


def _uniform_task(cfg: RunConfig, suite: Suite, names: Sequence[str], index: int) -> Task:
    epoch, position = divmod(index, len(names))
    # One generator per pass and one per position: any index can be drawn without its predecessors.
    order = seeds.make_generator(cfg.seed, RandomStream.TASKS, epoch)
    name = names[order.permutation(len(names))[position]]
    task_seed = seeds.make_generator(cfg.seed, RandomStream.TASKS, epoch, position)
    return suite.task(name, "train", int(task_seed.integers(cfg.suite.train_seeds_per_task)))
