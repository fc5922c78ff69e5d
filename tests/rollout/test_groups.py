"""Groups of siblings: pacing, order, deadlines, what is known already, errors."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.rollout.fakes import TASK, FakeSuite, FakeWorld
from tests.rollout.test_collector import rollout_threads
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.rollout import Collector, EpisodeConfig, GroupScheduler, Job
from webagent_jax.types import Completion, Episode, InfraError, Outcome

PRESS = '<answer> do(action="Click", element="1") </answer>'
SIZE = 3


@pytest.fixture(scope="module")
def rules():
    tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
    return EpisodeConfig(tokenizer, TEMPLATES["compact"], True, 4, 500, 60.0)


def finished(group, siblings, update=0):
    return {
        (group, at): Episode(
            TASK, "", (), 1.0, Outcome.SUCCESS, group=group, attempt=at, update=update
        )
        for at in siblings
    }


class Agents:
    """Press the button; may be held back by (group, sibling), and remember who was asked."""

    def __init__(self, tokenizer) -> None:
        ids = tokenizer.encode_response(PRESS)
        zeros = np.zeros(len(ids), np.int32)
        self._completion = Completion(ids, zeros.astype(np.float32), zeros, "stop")
        self.held: dict[tuple[int, int], threading.Event] = {}
        self.asked: list[tuple[int, int]] = []

    def make(self, key):
        agents = self

        class Agent:
            def respond(self, request):
                if request.turn == 0:
                    agents.asked.append(key)
                if key in agents.held and not agents.held[key].wait(20):
                    raise InfraError("nobody let go")
                return agents._completion

        return Agent()


@pytest.fixture
def agents(rules):
    return Agents(rules.tokenizer)


@pytest.fixture
def play(rules, agents):
    def jobs(number):
        return [
            Job(TASK, 0, rules, lambda at=at: agents.make((number, at)), number, at)
            for at in range(SIZE)
        ]

    def make(suite=None, contexts=4, **options):
        collector = Collector(
            suite or FakeSuite(), max_concurrent_episodes=contexts, infra_retries=0
        )
        return GroupScheduler(collector, jobs, **options)

    return make


def test_no_more_is_played_than_was_begun(play, agents):
    with play() as groups:
        groups.schedule(2, update=0)
        assert {groups.next_group().index for _ in range(2)} == {0, 1}
        time.sleep(0.05)
        assert sorted(agents.asked) == [(n, at) for n in range(2) for at in range(SIZE)]
        assert groups.pending == {}
        with pytest.raises(ValueError, match="no such group is pending"):
            groups.next_group()
    assert not rollout_threads()


def test_a_group_is_its_siblings_in_order(play, agents):
    agents.held[0, 0] = threading.Event()
    with play() as groups:
        groups.schedule(1, update=0)
        threading.Timer(0.1, agents.held[0, 0].set).start()
        episodes = groups.next_group().group.episodes
    assert [(e.group, e.attempt) for e in episodes] == [(0, at) for at in range(SIZE)]


def test_who_is_done_first_is_taken_first_unless_the_old_are_asked_for(play, agents):
    agents.held[0, 1] = threading.Event()
    with play() as groups:
        groups.schedule(1, update=0)
        groups.schedule(2, update=1)
        assert groups.next_group().index == 1
        assert groups.num_scheduled_by(0) == 1 and groups.num_scheduled_by(1) == 2
        threading.Timer(0.1, agents.held[0, 1].set).start()
        assert groups.next_group(max_update=0).index == 0
        assert groups.pending == {2: 1}
        assert groups.next_group().index == 2


def test_a_straggler_does_not_keep_its_group_past_the_deadline(play, agents):
    agents.held[0, 2] = threading.Event()
    with play(timeout=0.3) as groups:
        groups.schedule(1, update=0)
        episodes = groups.next_group().group.episodes
        assert [e.attempt for e in episodes] == [0, 1]
        agents.held[0, 2].set()
        groups.schedule(1, update=0)
        assert len(groups.next_group().group.episodes) == SIZE  # the late one disturbs nobody


def test_one_episode_is_no_group_whatever_the_deadline(play, agents):
    for at in (1, 2):
        agents.held[0, at] = threading.Event()
    with play(timeout=0.1) as groups:
        groups.schedule(1, update=0)
        threading.Timer(0.5, agents.held[0, 1].set).start()
        assert [e.attempt for e in groups.next_group().group.episodes] == [0, 1]
        agents.held[0, 2].set()


def test_what_is_known_is_not_played_again(play, agents):
    known = finished(5, (0, 2)) | finished(8, range(SIZE))
    with play(first=8, stride=2, resume={5: 0}, backlog=[4], finished=known) as groups:
        assert groups.pending == {5: 0}
        groups.schedule(3, update=0)
        assert {groups.next_group().index for _ in range(4)} == {4, 5, 8, 10}
        assert groups.next_index == 12 and groups.backlog == ()
    assert sorted(agents.asked) == [(4, 0), (4, 1), (4, 2), (5, 1), (10, 0), (10, 1), (10, 2)]


def test_a_group_is_as_old_as_its_oldest_episode(play, agents):
    updates = {1: 4, 2: 3, 3: 6, 4: 2}
    known = {key: e for n, u in updates.items() for key, e in finished(n, (0,), u).items()}
    with play(first=2, resume={1: 4}, finished=known, max_staleness=2) as groups:
        groups.schedule(3, update=5)
        assert groups.pending == {1: 4, 2: 3, 3: 5, 4: 5}
        assert {groups.next_group().index for _ in range(4)} == {1, 2, 3, 4}
    # The episode of update 2 is too old for a group of update 5.
    kept = {(1, 0), (2, 0), (3, 0)}
    assert set(agents.asked) == {(n, at) for n in updates for at in range(SIZE)} - kept


def test_a_fault_is_an_episode_without_a_reward(play):
    def world(number):
        return FakeWorld(fail_at=0 if number == 0 else None)

    with play(FakeSuite(world), contexts=1) as groups:
        groups.schedule(1, update=0)
        episodes = groups.next_group().group.episodes
    assert [e.outcome for e in episodes] == [Outcome.INFRA, Outcome.SUCCESS, Outcome.SUCCESS]


def test_a_bug_reaches_whoever_waits(play):
    def broken(number):
        raise RuntimeError("a bug")

    with play(FakeSuite(broken)) as groups:
        groups.schedule(1, update=0)
        with pytest.raises(RuntimeError, match="a bug"):
            groups.next_group()
    assert not rollout_threads()


def test_leaving_drops_what_waits_and_ends_what_runs(play, agents):
    agents.held[0, 0] = threading.Event()
    with play(contexts=1) as groups:
        groups.schedule(4, update=0)
        while not agents.asked:
            time.sleep(0.01)
        agents.held[0, 0].set()
    assert len(agents.asked) < 4 * SIZE
    assert not rollout_threads()
