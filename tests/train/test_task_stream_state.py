"""Where a run stands, for each of its hosts, and when it goes on with other hosts."""

from __future__ import annotations

from itertools import count, islice

import pytest

from webagent_jax import distributed
from webagent_jax.train.resume import Position


@pytest.fixture
def of(monkeypatch):
    """The position of every host of so many."""

    def positions(saved, number):
        monkeypatch.setattr(distributed, "process_count", lambda: number)
        found = []
        for this in range(number):
            monkeypatch.setattr(distributed, "process_index", lambda this=this: this)
            found.append(Position.of(saved))
        return found

    return positions


def test_a_run_begins_with_every_number_once(of):
    starts = of({}, 3)
    assert [(p.update, p.drawn) for p in starts] == [(0, 0), (0, 1), (0, 2)]
    assert not any(p.open or p.backlog for p in starts)


def test_the_same_hosts_go_on_as_they_were(of):
    each = [
        {"drawn": 8, "open": [[2, 3], [6, 4]], "backlog": []},
        {"drawn": 11, "open": [], "backlog": [5, 7]},
    ]
    assert of({"update": 4, "hosts": each}, 2) == [
        Position(4, 8, {2: 3, 6: 4}, ()),
        Position(4, 11, {}, (5, 7)),
    ]


@pytest.mark.parametrize("number", [1, 3, 4])
def test_other_hosts_skip_nothing_and_repeat_nothing(of, number):
    drawn = {0: 12, 1: 5}  # of two hosts: numbers 0, 2 .. 10 and 1, 3 were begun
    each = [
        {"drawn": drawn[0], "open": [[4, 7], [10, 8]], "backlog": []},
        {"drawn": drawn[1], "open": [[3, 8]], "backlog": []},
    ]
    done = {n for n in range(20) if n < drawn[n % 2]} - {4, 10, 3}
    positions = of({"update": 9, "hosts": each}, number)
    assert open_groups(positions) == [(3, 8), (4, 7), (10, 8)]
    assert coming(positions) == sorted(set(range(20)) - done)
    each = [
        {"drawn": p.drawn, "open": list(p.open.items()), "backlog": p.backlog} for p in positions
    ]
    again = of({"update": 9, "hosts": each}, 2)
    assert open_groups(again) == open_groups(positions)
    assert coming(again) == coming(positions)


def test_every_host_gets_as_many_open_groups_of_each_age(of):
    opened = [[4, 7], [6, 7], [8, 8], [10, 8]]
    saved = {"update": 9, "hosts": [{"drawn": 12, "open": opened, "backlog": []}]}
    assert [sorted(p.open.values()) for p in of(saved, 2)] == [[7, 8], [7, 8]]


def open_groups(positions):
    return sorted(group for p in positions for group in p.open.items())


def coming(positions):
    """Numbers below 20 that are still to be taken."""
    draws = (n for p in positions for n in islice(count(p.drawn, len(positions)), 20) if n < 20)
    return sorted([*draws, *(n for p in positions for n in (*p.open, *p.backlog))])
