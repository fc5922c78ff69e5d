"""Tests of the collector: order, retries, errors, early exit."""

from __future__ import annotations

import threading
import time

import pytest

from tests.rollout.fakes import TASK, FakeEnv, FakeSampler, FakeSuite
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.rollout import Collector, EngineAgent, EpisodeConfig, Job
from webagent_jax.rollout.collector import WorkerPool
from webagent_jax.types import InfraError, Outcome

PRESS = '<answer> do(action="Click", element="1") </answer>'


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


@pytest.fixture
def samplers():
    """Samplers of all runs of jobs, one per run."""
    return []


@pytest.fixture
def make_job(tokenizer, samplers):
    def make_agent():
        samplers.append(FakeSampler(tokenizer, [PRESS]))
        return EngineAgent(samplers[-1], tokenizer.stop_ids, max_new_tokens=8, temperature=1.0)

    def make(seed=0):
        episode_config = EpisodeConfig(tokenizer, PromptFormat(TEMPLATES["compact"]), 4, 500, 60.0)
        return Job(TASK, seed, episode_config, make_agent)

    return make


@pytest.fixture
def closing(monkeypatch):
    """Event that is set once a pool closes."""
    event, close = threading.Event(), WorkerPool.close

    def close_pool(pool):
        pool._stop.set()
        event.set()
        close(pool)

    monkeypatch.setattr(WorkerPool, "close", close_pool)
    return event


def make_collector(suite, **options):
    return Collector(suite, **{"max_concurrent_episodes": 3, "infra_retries": 1, **options})


def rollout_threads():
    return [t for t in threading.enumerate() if t.name.startswith("rollout")]


def test_run_jobs_runs_and_closes_all_jobs(make_job):
    suite = FakeSuite()
    episodes = make_collector(suite).run_jobs([make_job() for _ in range(7)])
    assert [e.outcome for e in episodes] == [Outcome.SUCCESS] * 7
    assert len(suite.envs) == 7
    assert all(env.closed for env in suite.envs)
    assert not rollout_threads()


def test_infra_error_is_retried_with_equal_seeds(make_job, samplers):
    suite = FakeSuite(lambda index: FakeEnv(fail_step=1 if index == 0 else None))
    runs = []
    (episode,) = make_collector(suite, on_run=runs.append).run_jobs([make_job(seed=3)])
    assert episode.outcome is Outcome.SUCCESS
    assert [e.outcome for e in runs] == [Outcome.INFRA, Outcome.SUCCESS]
    first_seeds, retry_seeds = (
        [request["seed"] for request in sampler.requests] for sampler in samplers
    )
    assert len(set(first_seeds)) == 2
    assert retry_seeds == first_seeds


def test_infra_error_is_reported_after_last_retry(make_job):
    suite = FakeSuite(lambda index: FakeEnv(fail_step=0))
    (episode,) = make_collector(suite).run_jobs([make_job()])
    assert episode.outcome is Outcome.INFRA
    assert len(suite.envs) == 2


def test_env_creation_error_is_infra_error(make_job):
    def fail(index):
        raise InfraError("no browser")

    (episode,) = make_collector(FakeSuite(fail)).run_jobs([make_job()])
    assert (episode.outcome, episode.infra_error) == (Outcome.INFRA, "no browser")


def test_other_errors_are_raised_to_caller(make_job):
    def fail(index):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        make_collector(FakeSuite(fail)).run_jobs([make_job() for _ in range(5)])
    assert not rollout_threads()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_episodes_that_end_after_error_are_passed_to_on_episode(make_job, closing, error):
    all_running = threading.Barrier(3)

    class Env(FakeEnv):
        """Environment that fails, or that waits until the pool closes."""

        def __init__(self, is_faulty):
            super().__init__()
            self._is_faulty = is_faulty

        def reset(self):
            all_running.wait(20)
            if self._is_faulty:
                raise error
            assert closing.wait(20)
            return super().reset()

    episodes = []
    suite = FakeSuite(lambda index: Env(is_faulty=index == 0))
    with pytest.raises(type(error)):
        make_collector(suite).run_jobs([make_job() for _ in range(9)], episodes.append)
    assert [e.outcome for e in episodes] == [Outcome.SUCCESS] * 2


def test_closed_pool_starts_no_retry(make_job, closing):
    suite = FakeSuite(lambda index: FakeEnv(fail_step=0))
    collector = make_collector(suite, infra_retries=3, on_run=lambda episode: closing.wait(20))
    with collector.start([make_job()]):
        while not suite.envs:
            time.sleep(0.01)
    assert len(suite.envs) == 1


def test_prompt_error_ends_only_its_episode(make_job):
    suite = FakeSuite(lambda index: FakeEnv(page="half a character: \ud83d" * (index < 2)))
    runs = []
    episodes = make_collector(suite, max_concurrent_episodes=1, on_run=runs.append).run_jobs(
        [make_job(), make_job(), make_job()]
    )
    assert [e.outcome for e in episodes] == [Outcome.INFRA, Outcome.SUCCESS, Outcome.SUCCESS]
    assert len(runs) == 4  # the first job ran twice
    assert [(e.reward, e.turns) for e in runs[:2]] == [(None, ())] * 2
    for episode in runs[:2]:
        assert episode.infra_error.startswith("the prompt cannot be built: TypeError(")


def test_early_exit_starts_no_more_jobs(make_job):
    suite = FakeSuite()
    with make_collector(suite, max_concurrent_episodes=1).start(
        [make_job() for _ in range(50)]
    ) as pool:
        next(pool)
    assert len(suite.envs) < 50
    assert all(env.closed for env in suite.envs)
    assert not rollout_threads()


def test_start_accepts_iterator_and_returns_all_results(make_job):
    job_numbers = []

    def jobs():
        for index in range(6):
            job_numbers.append(index)
            yield make_job()

    with make_collector(FakeSuite(), max_concurrent_episodes=2).start(jobs()) as pool:
        first_index, _ = next(pool)
        assert first_index in (0, 1)
        assert {index for index, _ in pool} | {first_index} == set(range(6))
    assert job_numbers == list(range(6))
    with pytest.raises(StopIteration):
        pool.next_result()
