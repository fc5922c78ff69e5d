"""Tests of the episode journal, alone and with the files of a training."""

from __future__ import annotations

import threading

import pytest

from tests.rollout.fakes import TASK
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.train.resume import episode_file, episode_files
from webagent_jax.types import Episode, Outcome


def episode(group, attempt, reward=1.0, update=0):
    outcome = Outcome.INFRA if reward is None else Outcome.SUCCESS
    return Episode(TASK, "do it", (), reward, outcome, group=group, attempt=attempt, update=update)


def make_journal(folder):
    return EpisodeJournal(folder, key=lambda e: (e.group, e.attempt))


def add(folder, episode, process=0):
    make_journal(folder).add(episode, episode_file(episode.update, process))


def load(folder, first_update=0):
    return make_journal(folder).load(episode_files(folder, first_update))


def test_load_returns_episodes_by_key(tmp_path):
    journal = make_journal(tmp_path)
    assert journal.load() == {}
    for attempt in (1, 0):
        journal.add(episode(3, attempt))
    assert make_journal(tmp_path).load() == {(3, 0): episode(3, 0), (3, 1): episode(3, 1)}


def test_episode_files_select_updates(tmp_path):
    for update in (1, 2, 3):
        for attempt in (1, 0):
            add(tmp_path, episode(10 * update, attempt, update=update))
    assert load(tmp_path, first_update=2) == {
        (20, 0): episode(20, 0, update=2),
        (20, 1): episode(20, 1, update=2),
        (30, 0): episode(30, 0, update=3),
        (30, 1): episode(30, 1, update=3),
    }


def test_later_update_replaces_stale_episode(tmp_path):
    add(tmp_path, episode(7, 0, reward=0.0, update=9), process=1)
    add(tmp_path, episode(7, 0, update=3))
    assert load(tmp_path) == {(7, 0): episode(7, 0, reward=0.0, update=9)}


def test_load_omits_episodes_without_reward(tmp_path):
    add(tmp_path, episode(0, 0, reward=None))
    add(tmp_path, episode(0, 1))
    assert set(load(tmp_path)) == {(0, 1)}


def test_replay_keeps_infra_episodes_before_newest_update_with_reward(tmp_path):
    for update in range(5):
        add(tmp_path, episode(update, 0, reward=None, update=update))
    # The site was down again from update 3 on.
    for update in range(3):
        add(tmp_path, episode(update, 1, update=update), process=1)
    episodes = make_journal(tmp_path).load(episode_files(tmp_path, 1), for_replay=True)
    assert episodes == {
        (1, 0): episode(1, 0, reward=None, update=1),
        (1, 1): episode(1, 1, update=1),
        (2, 1): episode(2, 1, update=2),
    }


@pytest.mark.parametrize("process", [0, 1])
def test_replay_prefers_episode_with_reward(tmp_path, process):
    # It ran again in the same update, after a resume with another number of processes.
    add(tmp_path, episode(0, 0, reward=None), process=1 - process)
    add(tmp_path, episode(0, 0), process=process)
    add(tmp_path, episode(1, 0, update=1))
    episodes = make_journal(tmp_path).load(episode_files(tmp_path, 0), for_replay=True)
    assert episodes == {(0, 0): episode(0, 0), (1, 0): episode(1, 0, update=1)}


def test_load_skips_incomplete_last_line(tmp_path):
    add(tmp_path, episode(0, 0))
    with (tmp_path / "update-00001.jsonl").open("a") as file:
        file.write('{"task": {"id": "fak')
    assert set(load(tmp_path)) == {(0, 0)}
    add(tmp_path, episode(0, 1))
    assert set(load(tmp_path)) == {(0, 0), (0, 1)}


def test_processes_write_own_files_and_read_all(tmp_path):
    add(tmp_path, episode(0, 0))
    add(tmp_path, episode(1, 0), process=1)
    assert len(list(tmp_path.iterdir())) == 2
    assert set(load(tmp_path)) == {(0, 0), (1, 0)}


def test_add_from_many_threads_writes_complete_lines(tmp_path):
    journal = make_journal(tmp_path)
    threads = [
        threading.Thread(target=lambda i=i: [journal.add(episode(i, n)) for n in range(20)])
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(journal.load()) == {(i, n) for i in range(8) for n in range(20)}
