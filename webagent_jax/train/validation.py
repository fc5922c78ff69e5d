"""Success rate of a policy during training, and the policy with the highest one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from webagent_jax import distributed, policy, seeds
from webagent_jax.config import RunConfig
from webagent_jax.inference import Engine
from webagent_jax.policy import weights
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.seeds import RandomStream
from webagent_jax.suites.registry import require_task_names
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import PolicySnapshot, Task

Json = dict[str, Any]

# Below this fraction of the tasks, the success rate depends on which of them have a reward.
_MIN_SCORED_FRACTION = 0.95


class Validation:
    """Success rate on a fixed sample of training tasks.

    BC and M-GRPO with the same seed and number of episodes have the same tasks.

    Args:
        cfg: config of the run.
        runtime: runs the episodes.
        num_episodes: number of tasks: a sample of the task names, or all of them repeatedly. Names
            with several seeds repeat with other seeds.

    Raises:
        ConfigError: the training split has no task.
    """

    def __init__(self, cfg: RunConfig, runtime: RolloutRuntime, num_episodes: int) -> None:
        self._cfg, self._runtime = cfg, runtime
        draw = seeds.make_generator(cfg.seed, RandomStream.VALIDATION)
        names = require_task_names(runtime.suite, "train")
        self._tasks = [
            runtime.suite.task(name, "train", int(draw.integers(cfg.suite.num_train_seeds)))
            # np.resize repeats the names until there are enough. The permutation precedes the
            # selection: the first names of a suite are those of one site.
            for name in draw.permutation(np.resize(names, max(num_episodes, len(names))))[
                :num_episodes
            ]
        ]

    @property
    def tasks(self) -> Sequence[Task]:
        """Validation tasks, in the order of their jobs."""
        return self._tasks

    @contextmanager
    def awake_engine(self, snapshot: PolicySnapshot) -> Iterator[Engine]:
        """Yield the engine of the runtime with the given policy; it sleeps again on exit."""
        self._runtime.update_policy(snapshot)
        self._runtime.engine.wake_up()
        try:
            yield self._runtime.engine
        finally:
            self._runtime.engine.sleep()

    def measure(self) -> dict[str, float]:
        """Return the success rate over the episodes with a reward as metrics; a collective call.

        Samples as in evaluation, from the policy of the engine, which must be awake. Each process
        runs its share of the tasks, and all return the same rate.

        Returns:
            "validation/success" in [0, 1], unless no episode has a reward, and
            "validation/scored_fraction", the fraction of the tasks whose episode has one.
        """
        share = slice(distributed.process_index(), None, distributed.process_count())
        episodes = self._runtime.run(
            self._job(number, task) for number, task in list(enumerate(self._tasks))[share]
        )
        rewards = [e.reward for e in episodes if e.reward is not None]
        total, count = np.sum(distributed.allgather((sum(rewards), len(rewards))), axis=0)
        scored_fraction = {"validation/scored_fraction": float(count / len(self._tasks))}
        return ({"validation/success": float(total / count)} if count else {}) | scored_fraction

    def _job(self, number: int, task: Task) -> Job:
        return Job(
            task,
            seeds.derive_seed(self._cfg.seed, RandomStream.VALIDATION, number),
            self._runtime.episode_config(self._cfg.rollout.max_turns, evaluation=True),
            lambda: self._runtime.policy_agent(evaluation=True),
        )


class BestPolicy:
    """Params of the update with the highest validation success, on disk.

    A checkpoint contains the record at the time of saving. A run that resumes from it needs the
    params of that record, so they are kept as long as the checkpoint.

    Args:
        directory: contains the params.
        record: record in the checkpoint of the interrupted run; None at the start of a run.
    """

    def __init__(self, directory: Path, record: Json | None) -> None:
        self._directory = directory
        self._record = record  # update and success rate; None before the first validation
        self._checkpointed = [record]

    def record_for_checkpoint(self) -> Json | None:
        """Return the record for a checkpoint, which keeps its params."""
        # Two checkpoints remain on disk while a third one is written.
        self._checkpointed = [*self._checkpointed[-2:], self._record]
        return self._record

    def add(
        self, update: int, metrics: Mapping[str, float], params: policy.Params, progress: Progress
    ) -> None:
        """Save the params if their success rate is the highest; a collective call.

        A validation in which many tasks have no reward is ignored, because its rate is not
        comparable with the others.

        Args:
            update: number of completed updates.
            metrics: metrics of the update, with those of `Validation.measure` if it was called.
            params: params of the update.
            progress: receives a log message if the validation is ignored.
        """
        scored_fraction = metrics.get("validation/scored_fraction")
        if scored_fraction is None:
            return
        if scored_fraction < _MIN_SCORED_FRACTION:
            progress.log(
                f"update {update} cannot become the best policy: only {scored_fraction:.1%} of the "
                f"validation tasks have a reward, less than {_MIN_SCORED_FRACTION:.0%}"
            )
            return
        success = metrics["validation/success"]
        # A later update wins a tie: success is noisy, and more training is the better guess.
        if self._record and success < self._record["success"]:
            return
        self._record = {"update": update, "success": success}
        weights.save_params(self._directory / str(update), params)
        if distributed.process_index() == 0:
            records = (self._record, *self._checkpointed)
            kept = {str(record["update"]) for record in records if record}
            for path in self._directory.iterdir():
                if path.name not in kept:
                    shutil.rmtree(path)

    def restore(self, params: policy.Params, progress: Progress) -> policy.Params | None:
        """Return the best params; None without validation.

        Args:
            params: shapes, dtypes and shardings of the result.
            progress: receives a log message.
        """
        if self._record is None:
            return None
        update, success = self._record["update"], self._record["success"]
        progress.log(f"exporting update {update} with the best validation success, {success:.1%}")
        return weights.restore_params(self._directory / str(update), params)
