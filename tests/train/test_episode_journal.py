"""Finished episodes outlive the process that played them."""

from __future__ import annotations

import threading

from tests.rollout.fakes import TASK
from webagent_jax.train.resume import EpisodeJournal
from webagent_jax.types import Episode, Outcome


def episode(group, sibling, reward=1.0, update=0):
    outcome = Outcome.INFRA if reward is None else Outcome.SUCCESS
    return Episode(TASK, "do it", (), reward, outcome, group=group, attempt=sibling, update=update)


def test_what_was_added_is_loaded_by_group_and_sibling(tmp_path):
    journal = EpisodeJournal(tmp_path)
    for update in (1, 2, 3):
        for sibling in (1, 0):
            journal.add(episode(10 * update, sibling, update=update))
    assert EpisodeJournal(tmp_path).load(since=2) == {
        (20, 0): episode(20, 0, update=2),
        (20, 1): episode(20, 1, update=2),
        (30, 0): episode(30, 0, update=3),
        (30, 1): episode(30, 1, update=3),
    }


def test_what_was_played_again_takes_the_place_of_what_was_too_old(tmp_path):
    EpisodeJournal(tmp_path, host=1).add(episode(7, 0, reward=0.0, update=9))
    EpisodeJournal(tmp_path).add(episode(7, 0, update=3))
    assert EpisodeJournal(tmp_path).load(since=0) == {(7, 0): episode(7, 0, reward=0.0, update=9)}


def test_a_fault_is_played_again(tmp_path):
    journal = EpisodeJournal(tmp_path)
    journal.add(episode(0, 0, reward=None))
    journal.add(episode(0, 1))
    assert set(journal.load(since=0)) == {(0, 1)}


def test_a_half_written_line_is_a_running_episode(tmp_path):
    journal = EpisodeJournal(tmp_path)
    journal.add(episode(0, 0))
    with (tmp_path / "update-00001.jsonl").open("a") as file:
        file.write('{"task": {"id": "fak')
    assert set(EpisodeJournal(tmp_path).load(since=0)) == {(0, 0)}
    EpisodeJournal(tmp_path).add(episode(0, 1))
    assert set(EpisodeJournal(tmp_path).load(since=0)) == {(0, 0), (0, 1)}


def test_each_host_writes_its_own_and_reads_all(tmp_path):
    EpisodeJournal(tmp_path).add(episode(0, 0))
    EpisodeJournal(tmp_path, host=1).add(episode(1, 0))
    assert len(list(tmp_path.iterdir())) == 2
    assert set(EpisodeJournal(tmp_path, host=1).load(since=0)) == {(0, 0), (1, 0)}


def test_many_threads_write_whole_lines(tmp_path):
    journal = EpisodeJournal(tmp_path)
    threads = [
        threading.Thread(target=lambda at=at: [journal.add(episode(at, n)) for n in range(20)])
        for at in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(journal.load(since=0)) == {(at, n) for at in range(8) for n in range(20)}
