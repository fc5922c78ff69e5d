"""Threads around episodes: order, retries, errors, an early end."""

from __future__ import annotations

import threading

import pytest

from tests.rollout.fakes import TASK, FakeSampler, FakeSuite, FakeWorld
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.rollout import Collector, EngineAgent, EpisodeConfig, Job
from webagent_jax.types import InfraError, Outcome

PRESS = '<answer> do(action="Click", element="1") </answer>'


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


@pytest.fixture
def job(tokenizer):
    def make(seed=0):
        rules = EpisodeConfig(tokenizer, TEMPLATES["compact"], True, 4, 500, 60.0)
        return Job(
            TASK,
            seed,
            rules,
            lambda: EngineAgent(
                FakeSampler(tokenizer, [PRESS]),
                tokenizer.stop_ids,
                max_new_tokens=8,
                temperature=1.0,
            ),
        )

    return make


def collector(suite, **options):
    return Collector(suite, **{"max_concurrent_episodes": 3, "infra_retries": 1, **options})


def rollout_threads():
    return [t for t in threading.enumerate() if t.name.startswith("rollout")]


def test_all_jobs_are_played_and_closed(job):
    suite = FakeSuite()
    episodes = collector(suite).run_jobs([job() for _ in range(7)])
    assert [e.outcome for e in episodes] == [Outcome.SUCCESS] * 7
    assert len(suite.worlds) == 7
    assert all(world.closed for world in suite.worlds)
    assert not rollout_threads()


def test_a_fault_costs_a_try(job):
    suite = FakeSuite(lambda number: FakeWorld(fail_at=0 if number == 0 else None))
    tried = []
    (episode,) = collector(suite, on_run=tried.append).run_jobs([job()])
    assert episode.outcome is Outcome.SUCCESS
    assert [e.outcome for e in tried] == [Outcome.INFRA, Outcome.SUCCESS]


def test_faults_beyond_the_retries_are_reported(job):
    suite = FakeSuite(lambda number: FakeWorld(fail_at=0))
    (episode,) = collector(suite).run_jobs([job()])
    assert episode.outcome is Outcome.INFRA
    assert len(suite.worlds) == 2


def test_a_world_that_cannot_be_opened_is_a_fault(job):
    def refuse(number):
        raise InfraError("no browser")

    (episode,) = collector(FakeSuite(refuse)).run_jobs([job()])
    assert (episode.outcome, episode.infra_error) == (Outcome.INFRA, "no browser")


def test_any_other_error_reaches_the_caller(job):
    def broken(number):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        collector(FakeSuite(broken)).run_jobs([job() for _ in range(5)])
    assert not rollout_threads()


def test_a_prompt_that_cannot_be_made_ends_its_own_episode_alone(job):
    suite = FakeSuite(lambda number: FakeWorld(page="half a character: \ud83d" * (number < 2)))
    tried = []
    episodes = collector(suite, max_concurrent_episodes=1, on_run=tried.append).run_jobs(
        [job(), job(), job()]
    )
    assert [e.outcome for e in episodes] == [Outcome.INFRA, Outcome.SUCCESS, Outcome.SUCCESS]
    assert len(tried) == 4  # the first was played twice
    assert [(e.reward, e.turns) for e in tried[:2]] == [(None, ())] * 2
    for episode in tried[:2]:
        assert episode.infra_error.startswith("the prompt cannot be built: TypeError(")


def test_leaving_early_starts_no_more(job):
    suite = FakeSuite()
    with collector(suite, max_concurrent_episodes=1).start([job() for _ in range(50)]) as crew:
        next(crew)
    assert len(suite.worlds) < 50
    assert all(world.closed for world in suite.worlds)
    assert not rollout_threads()


def test_jobs_are_drawn_as_threads_become_free(job):
    drawn = []

    def jobs():
        for number in range(6):
            drawn.append(number)
            yield job()

    with collector(FakeSuite(), max_concurrent_episodes=2).start(jobs()) as crew:
        first, _ = next(crew)
        assert first in (0, 1)
        assert {index for index, _ in crew} | {first} == set(range(6))
    assert drawn == list(range(6))
    with pytest.raises(StopIteration):
        crew.next_result()
