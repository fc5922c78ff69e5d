"""Tests of the policy with the highest validation success."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import pytest

from tests.recording_progress import RecordingProgress
from webagent_jax import distributed
from webagent_jax.config import ConfigError, GRPOConfig, RunConfig, SuiteConfig
from webagent_jax.suites.site import SiteSuite, SiteTask
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.train.validation import BestPolicy, Validation
from webagent_jax.types import Episode, Outcome, Task

SITE = SiteSuite(
    None,
    SuiteConfig(),
    "http://localhost:9",
    {"go": lambda rng: SiteTask("Go.", lambda page, answer: True)},
)


def make_params(value: float) -> dict[str, jnp.ndarray]:
    return {"embed": jnp.full((2, 3), value)}


def add(
    best: BestPolicy, update: int, success: float, progress: Progress | None = None, scored=1.0
) -> None:
    """Add an update whose params are its number."""
    metrics = {"validation/success": success, "validation/scored_fraction": scored}
    best.add(update, metrics, make_params(update), progress or NullProgress())


def restore_value(best: BestPolicy) -> float:
    params = best.restore(make_params(0.0), NullProgress())
    assert params is not None
    return float(params["embed"][0, 0])


def test_best_policy_restores_last_of_highest_success(tmp_path: Path) -> None:
    best = BestPolicy(tmp_path / "best", None)
    assert best.restore(make_params(0.0), NullProgress()) is None
    for update, success in ((4, 0.25), (8, 0.5), (12, 0.5), (16, 0.25)):
        add(best, update, success)
    best.add(20, {"loss": 0.1}, make_params(20), NullProgress())  # without validation
    assert best.record_for_checkpoint() == {"update": 12, "success": 0.5}
    assert restore_value(best) == 12


def test_best_policy_ignores_validation_with_few_rewards(tmp_path: Path) -> None:
    best, progress = BestPolicy(tmp_path / "best", None), RecordingProgress()
    add(best, 4, 0.5, progress, scored=0.95)
    add(best, 8, 0.75, progress, scored=60 / 64)
    best.add(12, {"validation/scored_fraction": 0.0}, make_params(12), progress)
    assert best.record_for_checkpoint() == {"update": 4, "success": 0.5}
    assert [line.partition(" of the")[0] for line in progress.lines] == [
        "update 8 cannot become the best policy: only 93.8%",
        "update 12 cannot become the best policy: only 0.0%",
    ]


def test_best_policy_of_killed_run_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    best = BestPolicy(tmp_path / "best", None)
    add(best, 4, 0.25)
    add(best, 8, 0.5)
    checkpoint = best.record_for_checkpoint()
    # Killed before another checkpoint.
    add(best, 12, 0.6)
    add(best, 14, 0.75)
    resumed = BestPolicy(tmp_path / "best", checkpoint)
    assert restore_value(resumed) == 8
    # Another outcome than before: live pages are not exactly reproducible.
    add(resumed, 12, 0.25)
    assert restore_value(resumed) == 8
    add(resumed, 16, 0.75)
    assert restore_value(resumed) == 16
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["16", "8"]
    # Two checkpoints exist, and a third is being written: their records remain.
    for update, success in ((20, 0.8), (24, 0.85), (28, 0.9)):
        add(resumed, update, success)
        resumed.record_for_checkpoint()
    add(resumed, 32, 0.95)
    names = sorted(path.name for path in (tmp_path / "best").iterdir())
    assert names == ["20", "24", "28", "32"]


@pytest.mark.parametrize(
    ("grpo", "message"),
    [
        (partial(GRPOConfig, eval_interval=4, eval_episodes=0), "grpo.eval_episodes must be at"),
        (partial(GRPOConfig, eval_interval=-1), "grpo.eval_interval must not be"),
    ],
)
def test_config_rejects_validation_without_episodes(
    grpo: Callable[[], GRPOConfig], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(grpo=grpo())


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        (
            [1.0, 0.0, None, None],
            {"validation/success": 0.5, "validation/scored_fraction": 0.5},
        ),
        ([None, None], {"validation/scored_fraction": 0.0}),
    ],
)
def test_validation_success_is_that_of_episodes_with_reward(rewards, expected, monkeypatch):
    class Runtime:
        """Runtime whose episodes have these rewards."""

        suite = SITE

        def run(self, jobs):
            task = Task("t", "s", (), "", "")
            return [Episode(task, "", (), reward, Outcome.FAILURE) for reward in rewards]

    # The browsers of a second process failed.
    monkeypatch.setattr(distributed, "allgather", lambda value: [value, (0, 0)])
    assert Validation(RunConfig(), Runtime(), 4).measure() == expected


def test_validation_samples_from_all_names():
    names = [f"task-{i:03d}" for i in range(200)]

    def make_task(rng):
        return SiteTask("Go.", lambda page, answer: True)

    class Runtime:
        """Runtime of a suite with more names than validation episodes."""

        suite = SiteSuite(
            None, SuiteConfig(), "http://localhost:9", {name: make_task for name in names}
        )

    tasks = Validation(RunConfig(), Runtime(), 40).tasks
    sampled = {task.id.split("/")[-2] for task in tasks}
    assert len(sampled) == 40
    # The first 40 names alone contain none of these.
    assert len(sampled & set(names[100:])) > 10


def test_validation_without_training_tasks_is_an_error():
    class Runtime:
        """Runtime of a suite whose training split is empty."""

        suite = SiteSuite(None, SuiteConfig(), "http://localhost:9", {})

    with pytest.raises(ConfigError, match="the train split has no task"):
        Validation(RunConfig(), Runtime(), 4)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_validation_runs_share_of_process(index, monkeypatch):
    class Runtime:
        """Runtime that records its jobs."""

        suite = SITE

        def run(self, jobs):
            self.jobs = list(jobs)
            return []

        def episode_config(self, max_turns, *, evaluation):
            return None

    monkeypatch.setattr(distributed, "process_count", lambda: 3)
    monkeypatch.setattr(distributed, "allgather", lambda value: [value])
    monkeypatch.setattr(distributed, "process_index", lambda: index)
    runtime = Runtime()
    Validation(RunConfig(), runtime, 7).measure()
    all_jobs = Runtime()
    monkeypatch.setattr(distributed, "process_count", lambda: 1)
    monkeypatch.setattr(distributed, "process_index", lambda: 0)
    Validation(RunConfig(), all_jobs, 7).measure()
    assert [(job.task.id, job.seed) for job in runtime.jobs] == [
        (job.task.id, job.seed) for job in all_jobs.jobs[index::3]
    ]


def test_validation_uses_options_of_evaluation():
    calls = []

    class Runtime:
        """Runtime that makes the agents of its jobs and records the options."""

        suite = SITE

        def run(self, jobs):
            for job in jobs:
                job.agent_factory()
            return []

        def episode_config(self, max_turns, *, evaluation=False):
            calls.append(("episode_config", max_turns, evaluation))

        def policy_agent(self, *, evaluation=False):
            calls.append(("policy_agent", evaluation))

    cfg = RunConfig()
    Validation(cfg, Runtime(), 2).measure()
    max_turns = cfg.rollout.max_turns
    assert calls == [("episode_config", max_turns, True), ("policy_agent", True)] * 2
