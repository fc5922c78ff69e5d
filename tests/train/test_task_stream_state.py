"""Task stream state of each process, also after a resume with other processes."""

from __future__ import annotations

from itertools import count, islice

import pytest

from webagent_jax import distributed
from webagent_jax.train.resume import TaskStreamState


@pytest.fixture
def of(monkeypatch):
    """The position of every host of so many."""

    def positions(saved, number):
        monkeypatch.setattr(distributed, "process_count", lambda: number)
        found = []
        for this in range(number):
            monkeypatch.setattr(distributed, "process_index", lambda this=this: this)
            found.append(TaskStreamState.from_checkpoint(saved))
        return found

    return positions


def test_a_run_begins_with_every_number_once(of):
    starts = of({}, 3)
    assert [(p.update, p.next_index) for p in starts] == [(0, 0), (0, 1), (0, 2)]
    assert not any(p.pending or p.backlog for p in starts)


def test_the_same_hosts_go_on_as_they_were(of):
    each = [
        {"next_index": 8, "pending": [[2, 3], [6, 4]], "backlog": []},
        {"next_index": 11, "pending": [], "backlog": [5, 7]},
    ]
    assert of({"update": 4, "processes": each}, 2) == [
        TaskStreamState(4, 8, {2: 3, 6: 4}, ()),
        TaskStreamState(4, 11, {}, (5, 7)),
    ]


@pytest.mark.parametrize("number", [1, 3, 4])
def test_other_hosts_skip_nothing_and_repeat_nothing(of, number):
    drawn = {0: 12, 1: 5}  # of two hosts: numbers 0, 2 .. 10 and 1, 3 were begun
    each = [
        {"next_index": drawn[0], "pending": [[4, 7], [10, 8]], "backlog": []},
        {"next_index": drawn[1], "pending": [[3, 8]], "backlog": []},
    ]
    done = {n for n in range(20) if n < drawn[n % 2]} - {4, 10, 3}
    positions = of({"update": 9, "processes": each}, number)
    assert open_groups(positions) == [(3, 8), (4, 7), (10, 8)]
    assert coming(positions) == sorted(set(range(20)) - done)
    each = [
        {"next_index": p.next_index, "pending": list(p.pending.items()), "backlog": p.backlog}
        for p in positions
    ]
    again = of({"update": 9, "processes": each}, 2)
    assert open_groups(again) == open_groups(positions)
    assert coming(again) == coming(positions)


def test_every_host_gets_as_many_open_groups_of_each_age(of):
    opened = [[4, 7], [6, 7], [8, 8], [10, 8]]
    saved = {"update": 9, "processes": [{"next_index": 12, "pending": opened, "backlog": []}]}
    assert [sorted(p.pending.values()) for p in of(saved, 2)] == [[7, 8], [7, 8]]


def open_groups(positions):
    return sorted(group for p in positions for group in p.pending.items())


def coming(positions):
    """Numbers below 20 that are still to be taken."""
    draws = (
        n for p in positions for n in islice(count(p.next_index, len(positions)), 20) if n < 20
    )
    return sorted([*draws, *(n for p in positions for n in (*p.pending, *p.backlog))])
