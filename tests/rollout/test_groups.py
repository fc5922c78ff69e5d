"""Tests of the group scheduler: pacing, order, timeouts, resumption, errors."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.rollout.fakes import TASK, FakeEnv, FakeSuite
from tests.rollout.test_collector import rollout_threads
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.rollout import Collector, EpisodeConfig, GroupScheduler, Job
from webagent_jax.types import Completion, Episode, InfraError, Outcome

PRESS = '<answer> do(action="Click", element="1") </answer>'
GROUP_SIZE = 3


@pytest.fixture(scope="module")
def episode_config():
    tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
    return EpisodeConfig(tokenizer, PromptFormat(TEMPLATES["compact"]), 4, 500, 60.0)


def make_finished_episodes(group, attempts, update=0, task=TASK):
    return {
        (group, attempt): Episode(
            task, "", (), 1.0, Outcome.SUCCESS, group=group, attempt=attempt, update=update
        )
        for attempt in attempts
    }


class Agents:
    """Agents that press the button; an event in `gates` delays the one of (group, attempt)."""

    def __init__(self, tokenizer) -> None:
        ids = tokenizer.encode_response(PRESS)
        zeros = np.zeros(len(ids), np.int32)
        self._completion = Completion(ids, zeros.astype(np.float32), zeros, "stop")
        self.gates: dict[tuple[int, int], threading.Event] = {}
        self.calls: list[tuple[int, int]] = []

    def make(self, key):
        agents = self

        class Agent:
            def respond(self, request):
                if request.turn == 0:
                    agents.calls.append(key)
                if key in agents.gates and not agents.gates[key].wait(20):
                    raise InfraError("the gate did not open")
                return agents._completion

        return Agent()


@pytest.fixture
def agents(episode_config):
    return Agents(episode_config.tokenizer)


@pytest.fixture
def make_scheduler(episode_config, agents):
    def jobs(index):
        return [
            Job(
                TASK,
                0,
                episode_config,
                lambda attempt=attempt: agents.make((index, attempt)),
                index,
                attempt,
            )
            for attempt in range(GROUP_SIZE)
        ]

    def make(suite=None, contexts=4, infra_retries=0, **options):
        collector = Collector(
            suite or FakeSuite(), max_concurrent_episodes=contexts, infra_retries=infra_retries
        )
        return GroupScheduler(collector, jobs, **options)

    return make


def test_scheduler_runs_only_scheduled_groups(make_scheduler, agents):
    with make_scheduler() as scheduler:
        scheduler.schedule(2, update=0)
        assert {scheduler.next_group().index for _ in range(2)} == {0, 1}
        time.sleep(0.05)
        assert sorted(agents.calls) == [
            (n, attempt) for n in range(2) for attempt in range(GROUP_SIZE)
        ]
        assert scheduler.pending == {}
        with pytest.raises(ValueError, match="no such group is pending"):
            scheduler.next_group()
    assert not rollout_threads()


def test_group_episodes_are_ordered_by_attempt(make_scheduler, agents):
    agents.gates[0, 0] = threading.Event()
    with make_scheduler() as scheduler:
        scheduler.schedule(1, update=0)
        threading.Timer(0.1, agents.gates[0, 0].set).start()
        episodes = scheduler.next_group().group.episodes
    assert [(e.group, e.attempt) for e in episodes] == [
        (0, attempt) for attempt in range(GROUP_SIZE)
    ]


def test_next_group_returns_first_completed_within_max_update(make_scheduler, agents):
    # Without its gate, group 2 may complete before group 1: episodes run concurrently.
    agents.gates |= {(0, 1): threading.Event(), (2, 0): threading.Event()}
    with make_scheduler() as scheduler:
        scheduler.schedule(1, update=0)
        scheduler.schedule(2, update=1)
        assert scheduler.next_group().index == 1
        assert scheduler.num_scheduled_by(0) == 1 and scheduler.num_scheduled_by(1) == 2
        threading.Timer(0.1, agents.gates[0, 1].set).start()
        assert scheduler.next_group(max_update=0).index == 0
        assert scheduler.pending == {2: 1}
        agents.gates[2, 0].set()
        assert scheduler.next_group().index == 2


def test_timeout_completes_group_without_slow_episode(make_scheduler, agents):
    agents.gates |= {(0, 2): threading.Event(), (1, 2): threading.Event()}

    def open_gate(episode):
        if (episode.group, episode.attempt) == (0, 2):
            agents.gates[1, 2].set()

    with make_scheduler(timeout=0.3, on_episode=open_gate) as scheduler:
        scheduler.schedule(1, update=0)
        episodes = scheduler.next_group().group.episodes
        assert [e.attempt for e in episodes] == [0, 1]
        agents.gates[0, 2].set()
        scheduler.schedule(1, update=0)
        # Attempt 2 of group 1 waits for the late episode of group 0, which is ignored. On a slow
        # machine, the timeout of group 1 may pass first, so its number of episodes varies.
        completed = scheduler.next_group()
        assert completed.index == 1
        assert {e.group for e in completed.group.episodes} == {1}


def test_timeout_waits_for_two_episodes(make_scheduler, agents):
    for attempt in (1, 2):
        agents.gates[0, attempt] = threading.Event()
    with make_scheduler(timeout=0.1) as scheduler:
        scheduler.schedule(1, update=0)
        threading.Timer(0.5, agents.gates[0, 1].set).start()
        assert [e.attempt for e in scheduler.next_group().group.episodes] == [0, 1]
        agents.gates[0, 2].set()


def test_episode_of_complete_group_is_not_retried(make_scheduler, agents):
    agents.gates[0, 2] = threading.Event()
    # One thread runs the attempts in their order.
    suite = FakeSuite(lambda index: FakeEnv(fail_step=0 if index >= 2 else None))
    episodes = []
    options = {"infra_retries": 2, "timeout": 0.1, "on_episode": episodes.append}
    with make_scheduler(suite, contexts=1, **options) as scheduler:
        scheduler.schedule(1, update=0)
        assert len(scheduler.next_group().group.episodes) == 2
        agents.gates[0, 2].set()
        while len(episodes) < GROUP_SIZE:
            time.sleep(0.01)
    assert len(suite.envs) == GROUP_SIZE


def test_finished_episodes_are_not_rerun(make_scheduler, agents):
    finished_episodes = make_finished_episodes(5, (0, 2)) | make_finished_episodes(
        8, range(GROUP_SIZE)
    )
    with make_scheduler(
        first=8, stride=2, resume={5: 0}, backlog=[4], finished=finished_episodes
    ) as scheduler:
        assert scheduler.pending == {5: 0}
        scheduler.schedule(3, update=0)
        assert {scheduler.next_group().index for _ in range(4)} == {4, 5, 8, 10}
        assert scheduler.next_index == 12 and scheduler.backlog == ()
    assert sorted(agents.calls) == [(4, 0), (4, 1), (4, 2), (5, 1), (10, 0), (10, 1), (10, 2)]


def test_finished_episodes_of_another_task_run_again(make_scheduler, agents):
    # With adaptive task sampling, a resumed run may choose another task for an index.
    other_task = replace(TASK, id="fake/1")
    finished_episodes = make_finished_episodes(0, (0, 2), task=other_task)
    finished_episodes |= make_finished_episodes(0, (1,))
    with make_scheduler(resume={0: 0}, first=1, finished=finished_episodes) as scheduler:
        episodes = scheduler.next_group().group.episodes
    assert sorted(agents.calls) == [(0, 0), (0, 2)]
    assert [(e.task.id, e.attempt) for e in episodes] == [
        (TASK.id, attempt) for attempt in range(GROUP_SIZE)
    ]


def test_finished_episodes_of_another_instruction_run_again(make_scheduler, agents):
    # The user may have corrected the task between the two starts of the run.
    old_task = replace(TASK, intent="an earlier instruction")
    finished_episodes = make_finished_episodes(0, (0, 2), task=old_task)
    finished_episodes |= make_finished_episodes(0, (1,))
    with make_scheduler(resume={0: 0}, first=1, finished=finished_episodes) as scheduler:
        scheduler.next_group()
    assert sorted(agents.calls) == [(0, 0), (0, 2)]


def test_pending_group_has_update_of_oldest_episode(make_scheduler, agents):
    updates = {1: 4, 2: 3, 3: 6, 4: 2}
    finished_episodes = {
        key: e for n, u in updates.items() for key, e in make_finished_episodes(n, (0,), u).items()
    }
    with make_scheduler(
        first=2, resume={1: 4}, finished=finished_episodes, max_staleness=2
    ) as scheduler:
        scheduler.schedule(3, update=5)
        assert scheduler.pending == {1: 4, 2: 3, 3: 5, 4: 5}
        assert {scheduler.next_group().index for _ in range(4)} == {1, 2, 3, 4}
    # The episode of update 2 is too old for a group of update 5.
    finished_keys = {(1, 0), (2, 0), (3, 0)}
    assert (
        set(agents.calls)
        == {(n, attempt) for n in updates for attempt in range(GROUP_SIZE)} - finished_keys
    )


def test_infra_error_is_returned_in_group(make_scheduler):
    def make_env(index):
        return FakeEnv(fail_step=0 if index == 0 else None)

    with make_scheduler(FakeSuite(make_env), contexts=1) as scheduler:
        scheduler.schedule(1, update=0)
        episodes = scheduler.next_group().group.episodes
    assert [e.outcome for e in episodes] == [Outcome.INFRA, Outcome.SUCCESS, Outcome.SUCCESS]


def test_next_group_raises_worker_error(make_scheduler):
    def fail(index):
        raise RuntimeError("a bug")

    with make_scheduler(FakeSuite(fail)) as scheduler:
        scheduler.schedule(1, update=0)
        with pytest.raises(RuntimeError, match="a bug"):
            scheduler.next_group()
    assert not rollout_threads()


def test_exit_drops_queued_and_ends_running_jobs(make_scheduler, agents):
    agents.gates[0, 0] = threading.Event()
    with make_scheduler(contexts=1) as scheduler:
        scheduler.schedule(4, update=0)
        while not agents.calls:
            time.sleep(0.01)
        agents.gates[0, 0].set()
    assert len(agents.calls) < 4 * GROUP_SIZE
    assert not rollout_threads()
