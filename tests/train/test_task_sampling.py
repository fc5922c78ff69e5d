"""Tests of the tasks of groups: passes over all names, and sampling by recent outcomes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from webagent_jax import distributed
from webagent_jax.config import ConfigError, GRPOConfig, RunConfig, SuiteConfig
from webagent_jax.suites.site import SiteSuite, SiteTask
from webagent_jax.train.task_sampling import TaskSampler, learning_weights
from webagent_jax.types import Episode, Outcome

SUCCESS_RATES = {"never": 0.0, "rarely": 0.05, "often": 0.5, "mostly": 0.95, "always": 1.0}
GROUP_SIZE = 8


@pytest.fixture
def suite():
    tasks = {name: lambda rng: SiteTask("Go.", lambda page, answer: True) for name in SUCCESS_RATES}
    return SiteSuite(None, SuiteConfig(), "http://localhost:9", tasks)


def make_config(**options) -> RunConfig:
    return RunConfig(grpo=GRPOConfig(**options))


def name_of(task) -> str:
    return task.id.split("/")[1]


def run_group(task, index: int, rng: np.random.Generator) -> list[Episode]:
    rewards = (rng.random(GROUP_SIZE) < SUCCESS_RATES[name_of(task)]).astype(float)
    return [
        Episode(task, "", (), reward, Outcome.SUCCESS if reward else Outcome.FAILURE, group=index)
        for reward in rewards
    ]


def run_update(sampler: TaskSampler, indices, seed: int) -> list[str]:
    """Run one group per index, record the episodes, and return the names of the tasks."""
    rng = np.random.default_rng(seed)
    tasks = {index: sampler.task(index) for index in indices}
    sampler.record([e for index, task in tasks.items() for e in run_group(task, index, rng)])
    return [name_of(task) for task in tasks.values()]


def test_uniform_sampler_takes_each_name_once_per_pass(suite):
    sampler = TaskSampler(make_config(), suite, {})
    tasks = [sampler.task(index) for index in range(4 * len(SUCCESS_RATES))]
    passes = np.reshape([name_of(task) for task in tasks], (4, -1)).tolist()
    assert all(sorted(names) == sorted(SUCCESS_RATES) for names in passes)
    assert len({tuple(names) for names in passes}) > 1
    assert len({task.id for task in tasks}) == len(tasks)


def test_learning_weight_is_posterior_mean_of_jeffreys_prior():
    for mixed, equal in ((0.0, 0.0), (8.0, 0.0), (3.0, 5.0), (0.7, 19.6)):
        p = (np.arange(1_000_000) + 0.5) / 1_000_000
        density = p ** (mixed - 0.5) * (1 - p) ** (equal - 0.5)
        weight = learning_weights(np.asarray([mixed]), np.asarray([equal]))
        assert weight == pytest.approx(np.sum(density * p) / np.sum(density), rel=2e-3)


def test_adaptive_sampler_prefers_tasks_with_different_rewards_and_returns_to_all(suite):
    sampler = TaskSampler(make_config(task_sampling="adaptive"), suite, {})
    # Without counts, all names are equally likely.
    first = run_update(sampler, range(10), seed=0)
    assert {first.count(name) for name in SUCCESS_RATES} <= {1, 2, 3}
    names = [
        name
        for update in range(1, 40)
        for name in run_update(sampler, range(10 * update, 10 * update + 10), seed=update)
    ]
    counts = {name: names.count(name) for name in SUCCESS_RATES}
    assert counts["often"] == max(counts.values())
    assert counts["often"] > 1.6 * len(names) / len(SUCCESS_RATES)
    # Tasks without a signal still come about every third update.
    assert min(counts.values()) >= 39 / 3
    assert len(np.unique(names[-50:])) == len(SUCCESS_RATES)


def test_adaptive_sampler_shares_counts_between_names_of_one_template():
    class TemplateSuite(SiteSuite):
        """Suite with 40 names of each template, such as "often/7"."""

        def task(self, name, split, index):
            return replace(super().task(name, split, index), template=name.split("/")[0])

    names = [f"{template}/{i}" for i in range(40) for template in SUCCESS_RATES]
    tasks = {name: lambda rng: SiteTask("Go.", lambda page, answer: True) for name in names}
    suite = TemplateSuite(None, SuiteConfig(), "http://localhost:9", tasks)
    cfg = make_config(task_sampling="adaptive")
    sampler = TaskSampler(cfg, suite, {})
    drawn = [
        template
        for update in range(20)
        for template in run_update(sampler, range(10 * update, 10 * update + 10), seed=update)
    ]
    # Nearly every name comes once: only its template has counts.
    assert drawn[-100:].count("often") > 1.6 * 100 / len(SUCCESS_RATES)
    assert set(drawn[-50:]) == set(SUCCESS_RATES)
    state = sampler.state()
    assert set(state["counts"]) == set(SUCCESS_RATES)
    assert TaskSampler(cfg, suite, state).task(200) == sampler.task(200)


def test_adaptive_sampler_follows_changed_success_rates(suite, monkeypatch):
    sampler = TaskSampler(make_config(task_sampling="adaptive"), suite, {})
    for update in range(20):
        run_update(sampler, range(10 * update, 10 * update + 10), seed=update)
    monkeypatch.setitem(SUCCESS_RATES, "never", 0.5)
    monkeypatch.setitem(SUCCESS_RATES, "often", 1.0)
    names = [
        name
        for update in range(20, 30)
        for name in run_update(sampler, range(10 * update, 10 * update + 10), seed=update)
    ]
    assert names[-50:].count("never") > 2 * names[-50:].count("often")


def test_counts_decay_per_pass_over_names(suite):
    sampler = TaskSampler(make_config(task_sampling="adaptive"), suite, {})
    rng = np.random.default_rng(0)
    num_names = len(SUCCESS_RATES)
    sampler.record(run_group(sampler.task(0), 0, rng))
    before = sum(map(sum, sampler.state()["counts"].values()))
    for index in range(1, 1 + num_names):
        sampler.record(run_group(sampler.task(index), index, rng))
    after = sum(map(sum, sampler.state()["counts"].values()))
    others = sum(0.7 ** (i / num_names) for i in range(num_names))
    assert before == 1.0 and after == pytest.approx(0.7 + others)


def test_restored_sampler_continues_like_uninterrupted_one(suite):
    cfg = make_config(task_sampling="adaptive")
    sampler = TaskSampler(cfg, suite, {})
    run_update(sampler, range(10), seed=0)
    # Scheduled before the checkpoint, with the weights of that time.
    ahead = {index: sampler.task(index) for index in (10, 11)}
    run_update(sampler, range(12, 20), seed=1)
    restored = TaskSampler(cfg, suite, sampler.state())
    assert {index: restored.task(index) for index in ahead} == ahead
    for update in range(2, 5):
        indices = range(10 * update, 10 * update + 10)
        assert run_update(restored, indices, update) == run_update(sampler, indices, update)


def test_processes_draw_by_outcomes_of_all(suite, monkeypatch):
    cfg = make_config(task_sampling="adaptive")
    single = TaskSampler(cfg, suite, {})
    samplers = [TaskSampler(cfg, suite, {}) for _ in range(2)]
    barrier, gathered, local = threading.Barrier(2), [None, None], threading.local()

    def allgather(value):
        gathered[local.process] = value
        barrier.wait()
        values = list(gathered)
        barrier.wait()
        return values

    rng = np.random.default_rng(0)
    groups = {index: run_group(single.task(index), index, rng) for index in range(10)}
    single.record([e for group in groups.values() for e in group])

    def run_process(process: int):
        local.process = process
        # The last group of each process is pending.
        indices = [i for i in groups if i % 2 == process]
        for index in [*indices, 10 + process]:
            samplers[process].task(index)
        samplers[process].record([e for index in indices for e in groups[index]])
        return samplers[process].state()

    monkeypatch.setattr(distributed, "allgather", allgather)
    with ThreadPoolExecutor(2) as pool:
        states = list(pool.map(run_process, range(2)))
    assert states[0] == states[1]
    assert sorted(index for index, _ in states[0]["scheduled"]) == [10, 11]
    assert [sampler.task(99) for sampler in samplers] == [single.task(99)] * 2


def test_groups_recorded_by_other_processes_leave_the_schedule(suite, monkeypatch):
    cfg = make_config(task_sampling="adaptive")
    sampler = TaskSampler(cfg, suite, {})
    tasks = {index: sampler.task(index) for index in range(4)}
    # After a resume, a process has the names of all processes.
    restored = TaskSampler(cfg, suite, sampler.state())
    # Another process records groups 2 and 3.
    others = [(index, name_of(tasks[index]), True) for index in (2, 3)]
    monkeypatch.setattr(distributed, "allgather", lambda value: [value, others])
    rng = np.random.default_rng(0)
    restored.record([e for index in (0, 1) for e in run_group(tasks[index], index, rng)])
    monkeypatch.setattr(distributed, "allgather", lambda value: [value])
    assert restored.state()["scheduled"] == []


def test_truncated_successes_count_as_in_the_objective(suite):
    def count(truncated_episodes: str) -> list[float]:
        cfg = make_config(task_sampling="adaptive", truncated_episodes=truncated_episodes)
        sampler = TaskSampler(cfg, suite, {})
        task = sampler.task(0)
        success = Episode(task, "", (), 1.0, Outcome.SUCCESS, truncated=True, group=0)
        sampler.record([success, replace(success, reward=0.0, outcome=Outcome.FAILURE)])
        return sampler.state()["counts"][name_of(task)]

    assert count("score") == [1.0, 0.0]
    assert count("zero") == [0.0, 1.0]


def test_infra_groups_are_not_counted(suite):
    sampler = TaskSampler(make_config(task_sampling="adaptive"), suite, {})
    episodes = run_group(sampler.task(0), 0, np.random.default_rng(0))
    failed = [replace(e, reward=None) for e in episodes[1:]]
    sampler.record([episodes[0], *failed])
    assert not any(map(sum, sampler.state()["counts"].values()))
    assert not sampler.state()["scheduled"]


@pytest.mark.parametrize("task_sampling", ["uniform", "adaptive"])
def test_suite_without_training_tasks_is_an_error(suite, monkeypatch, task_sampling):
    monkeypatch.setattr(suite, "task_names", lambda split: [])
    with pytest.raises(ConfigError, match=r"the train split has no task"):
        TaskSampler(make_config(task_sampling=task_sampling), suite, {})
