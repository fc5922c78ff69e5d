"""Sampling of the tasks of groups: in passes over all task names, or by recent outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from webagent_jax import distributed, learn, seeds
from webagent_jax.config import RunConfig
from webagent_jax.seeds import RandomStream
from webagent_jax.suites.registry import require_task_names
from webagent_jax.types import Episode, Group, Suite, Task

Float64Array = npt.NDArray[np.float64]


# Decay of all counts per pass over the templates; counts cover about three groups per template.
_DECAY = 0.7
# Jeffreys prior: initial count of groups with different rewards, and of those with equal ones.
_PRIOR = 0.5
# Multiples of the golden ratio modulo 1 are evenly spread over [0, 1), for any number of them.
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class TaskSampler:
    """Source of the task of each group of a run.

    Suites generate tasks by name and seed. With `grpo.task_sampling=uniform`, the names are taken
    in passes over all of them, reshuffled in each pass. With `adaptive`, names are sampled in
    proportion to the `learning_weights` of their templates; a name without a template is its own
    template. Each group gets a random seed of its name.

    A task depends on the index of its group and, if adaptive, on the outcomes of earlier updates;
    so retries and resumed runs repeat it.

    Args:
        cfg: config of the run.
        suite: suite of the tasks.
        saved: `state` of the interrupted run; empty at the start of a run.

    Raises:
        ConfigError: the suite has no training tasks.
    """

    def __init__(self, cfg: RunConfig, suite: Suite, saved: Mapping[str, Any]) -> None:
        self._cfg, self._suite = cfg, suite
        self._names = list(require_task_names(suite, "train"))
        self._templates: dict[str, str] = {}
        if cfg.grpo.task_sampling == "adaptive":
            self._templates = {n: suite.task(n, "train", 0).template or n for n in self._names}
        # By template: recent groups with different and with equal rewards.
        counts = saved.get("counts", {})
        self._counts = {
            template: np.asarray(counts.get(template, (0.0, 0.0)))
            for template in self._templates.values()
        }
        # Names of the groups that no update has recorded, by index. Kept only if adaptive.
        self._scheduled = {int(i): name for i, name in saved.get("scheduled", ())}

    def task(self, index: int) -> Task:
        """Return the task of the group at `index` in the task stream of the run."""
        if self._cfg.grpo.task_sampling == "uniform":
            return _uniform_task(self._cfg, self._suite, self._names, index)
        if index not in self._scheduled:
            self._scheduled[index] = self._draw_name(index)
        name = self._scheduled[index]
        task_seed = seeds.make_generator(self._cfg.seed, RandomStream.TASKS, index)
        num_seeds = self._cfg.suite.num_train_seeds
        return self._suite.task(name, "train", int(task_seed.integers(num_seeds)))

    def record(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Count the outcomes of an update, and return metrics; a collective call if adaptive.

        Args:
            episodes: all episodes of complete groups that this process collected for the update.
        """
        if self._cfg.grpo.task_sampling == "uniform":
            return {}
        groups: dict[int, list[Episode]] = {}
        for episode in episodes:
            groups.setdefault(episode.group, []).append(episode)
        outcomes = [
            (index, self._scheduled[index], self._is_mixed(each)) for index, each in groups.items()
        ]
        # All processes add the same counts, so their weights stay equal.
        recorded = [outcome for process in distributed.allgather(outcomes) for outcome in process]
        for index, _, _ in recorded:
            # After a resume, every process has the names of all processes.
            self._scheduled.pop(index, None)
        gathered = [(name, is_mixed) for _, name, is_mixed in recorded if is_mixed is not None]
        decay = _DECAY ** (len(gathered) / len(self._counts))
        self._counts = {template: decay * counts for template, counts in self._counts.items()}
        for name, is_mixed in gathered:
            self._counts[self._templates[name]][0 if is_mixed else 1] += 1
        share = self._shares()
        return {"tasks/effective_number": float(np.exp(-np.sum(share * np.log(share))))}

    def state(self) -> dict[str, Any]:
        """Return the state of all processes for a checkpoint; a collective call if adaptive."""
        if self._cfg.grpo.task_sampling == "uniform":
            return {}
        scheduled = distributed.allgather(sorted(self._scheduled.items()))
        return {
            "counts": {template: counts.tolist() for template, counts in self._counts.items()},
            "scheduled": [pair for process in scheduled for pair in process],
        }

    def _is_mixed(self, episodes: Sequence[Episode]) -> bool | None:
        """Return whether the rewards of a group differ in the objective; None if none can."""
        group = Group(episodes[0].task, tuple(episodes))
        rewards = learn.objective_rewards(group, self._cfg.grpo)
        # Fewer than two rewards, because of INFRA episodes, cannot differ.
        return not learn.has_equal_rewards(rewards) if len(rewards) > 1 else None

    def _shares(self) -> Float64Array:
        """Return the expected share of each name in the next groups."""
        counts = np.stack([self._counts[self._templates[name]] for name in self._names])
        weights = learning_weights(counts[:, 0], counts[:, 1])
        return weights / weights.sum()

    def _draw_name(self, index: int) -> str:
        offset = seeds.make_generator(self._cfg.seed, RandomStream.TASKS).random()
        point = (offset + index * _GOLDEN_RATIO) % 1.0
        number = int(np.searchsorted(np.cumsum(self._shares()), point, side="right"))
        # The sum of the shares may be slightly below 1.
        return self._names[min(number, len(self._names) - 1)]


def learning_weights(mixed: Float64Array, equal: Float64Array) -> Float64Array:
    """Return, for each task, the probability that the rewards of its next group differ.

    Only groups with different rewards have a policy gradient. The probability is the posterior mean
    under a Jeffreys prior: 1/2 without counts, and never 0. Counts decay, so every task is sampled
    again.

    Args:
        mixed: [n], number of groups with different rewards.
        equal: [n], number of groups with equal rewards.

    Returns:
        [n], in (0, 1).
    """
    return (_PRIOR + mixed) / (2 * _PRIOR + mixed + equal)


def _uniform_task(cfg: RunConfig, suite: Suite, names: Sequence[str], index: int) -> Task:
    epoch, position = divmod(index, len(names))
    # One generator per pass and one per position, so any index can be drawn without the others
    # before it. (That of position 0 equals that of its pass, see `seeds.derive_seed`.)
    order = seeds.make_generator(cfg.seed, RandomStream.TASKS, epoch)
    name = names[order.permutation(len(names))[position]]
    task_seed = seeds.make_generator(cfg.seed, RandomStream.TASKS, epoch, position)
    return suite.task(name, "train", int(task_seed.integers(cfg.suite.num_train_seeds)))
