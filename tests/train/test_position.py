"""Where a run stands, for each of its hosts, and when it goes on with other hosts."""

from __future__ import annotations

from itertools import count, islice

import pytest

from webagent_jax.train import hosts
from webagent_jax.train.position import Position


@pytest.fixture
def of(monkeypatch):
    """The position of every host of so many."""

    def positions(saved, number):
        monkeypatch.setattr(hosts, "count", lambda: number)
        found = []
        for this in range(number):
            monkeypatch.setattr(hosts, "this", lambda this=this: this)
            found.append(Position.of(saved))
        return found

    return positions


def test_a_run_begins_with_every_number_once(of):
    starts = of({}, 3)
    assert [(p.update, p.drawn, p.open) for p in starts] == [(0, 0, ()), (0, 1, ()), (0, 2, ())]


def test_the_same_hosts_go_on_as_they_were(of):
    saved = {"update": 4, "hosts": [{"drawn": 8, "open": [2, 6]}, {"drawn": 11, "open": []}]}
    assert of(saved, 2) == [Position(4, 8, (2, 6)), Position(4, 11, ())]


@pytest.mark.parametrize("number", [1, 3, 4])
def test_other_hosts_skip_nothing_and_repeat_nothing(of, number):
    drawn = {0: 12, 1: 5}  # of two hosts: numbers 0, 2 .. 10 and 1, 3 were begun
    saved = {
        "update": 9,
        "hosts": [{"drawn": drawn[0], "open": [4, 10]}, {"drawn": drawn[1], "open": [3]}],
    }
    done = {n for n in range(20) if n < drawn[n % 2]} - {4, 10, 3}
    positions = of(saved, number)
    coming = [
        n for p in positions for n in (*p.open, *islice(count(p.drawn, number), 20)) if n < 20
    ]
    assert sorted(coming) == sorted(set(range(20)) - done)
    again = of({"update": 9, "hosts": [{"drawn": p.drawn, "open": p.open} for p in positions]}, 2)
    coming = [n for p in again for n in (*p.open, *islice(count(p.drawn, 2), 20)) if n < 20]
    assert sorted(coming) == sorted(set(range(20)) - done)
