"""How well a policy does while it is cloned, on training tasks that it is not shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np

from webagent_jax import seeds
from webagent_jax.config import RunConfig
from webagent_jax.generate import Engine
from webagent_jax.policy import ModelConfig
from webagent_jax.report.progress import Progress
from webagent_jax.rollout import Job
from webagent_jax.seeds import Stream
from webagent_jax.stage import Stage
from webagent_jax.types import PolicySnapshot, Task


class Validation:
    """Plays `bc.eval_episodes` training tasks, the same ones each time: use `with`."""

    def __init__(
        self, cfg: RunConfig, progress: Progress, model: ModelConfig, snapshot: PolicySnapshot
    ) -> None:
        self._cfg = cfg
        self._stage = Stage(cfg, progress, model, snapshot)
        draw = seeds.generator(cfg.seed, Stream.BC_VALIDATION)
        names = self._stage.suite.names("train")
        self._tasks = [
            self._stage.suite.task(name, "train", int(draw.integers(cfg.suite.train_seeds)))
            for name in draw.permutation(np.resize(names, cfg.bc.eval_episodes))
        ]
        self._stage.engine.release()

    @property
    def task_ids(self) -> frozenset[str]:
        """No demonstration of these may be learned from."""
        return frozenset(task.id for task in self._tasks)

    @contextmanager
    def engine(self, snapshot: PolicySnapshot) -> Iterator[Engine]:
        """Return the engine with these params; its cache is released on exit."""
        self._stage.update_policy(snapshot)
        self._stage.engine.resume()
        try:
            yield self._stage.engine
        finally:
            self._stage.engine.release()

    def success_rate(self) -> float:
        """Return the success rate in [0, 1] over the tasks with a reward; call it in `engine`.

        Responses are sampled as in evaluation.
        """
        episodes = self._stage.play(self._job(at, task) for at, task in enumerate(self._tasks))
        rewards = [e.reward for e in episodes if e.reward is not None]
        return float(np.mean(rewards)) if rewards else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stage.__exit__(*error)

    def _job(self, number: int, task: Task) -> Job:
        return Job(
            task,
            seeds.derive(self._cfg.seed, Stream.BC_VALIDATION, number),
            self._stage.rules(self._cfg.rollout.max_turns, evaluation=True),
            lambda: self._stage.policy_agent(evaluation=True),
        )
