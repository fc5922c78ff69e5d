"""Turns on replicas: readers side by side, writers alone, resets, faults, deadlines."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from webagent_jax.suites.webarena.replicas import ReplicaLease, ReplicaPool
from webagent_jax.types import InfraError

WAIT = 10.0  # seconds at most, for what happens at once
SOON = 0.05  # seconds in which what must not happen would have


@dataclass
class Site:
    """What is asked of the replicas."""

    resets: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    wrong: str | None = None
    reset_fails: bool = False

    def reset(self, replicas: Sequence[tuple[str, str]]) -> None:
        self.resets += [address for _, address in replicas]
        if self.reset_fails:
            raise InfraError("no reset")

    def probe(self, site: str, address: str) -> str | None:
        self.probes.append(address)
        return self.wrong


def leases(site: Site | None = None, replicas: int = 1, **options: Any) -> ReplicaPool:
    site = site or Site()
    addresses = {
        name: [f"http://{name}-{i}" for i in range(replicas)] for name in ("gitlab", "reddit")
    }
    defaults: dict[str, Any] = {
        "timeout": WAIT,
        "reset": None,
        "reset_every": 1,
        "resettable_sites": ("gitlab", "reddit"),
        "probe": site.probe,
    }
    return ReplicaPool(addresses, **(defaults | options))


class Visitor:
    """A thread that takes its turn, and stays until it is told to leave."""

    def __init__(self, leases: ReplicaPool, sites: tuple[str, ...], writes: tuple[str, ...] = ()):
        self._in, self._leave = threading.Event(), threading.Event()
        self.lease: ReplicaLease | None = None
        self._thread = threading.Thread(target=self._visit, args=(leases, sites, writes))
        self._thread.start()

    def _visit(self, leases: ReplicaPool, sites: tuple[str, ...], writes: tuple[str, ...]) -> None:
        with leases.acquire(sites, writes) as self.lease:
            self._in.set()
            assert self._leave.wait(WAIT)

    def is_in(self, soon: float = WAIT) -> bool:
        return self._in.wait(soon)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(WAIT)


@contextmanager
def visitors(leases: ReplicaPool, *who: tuple[tuple[str, ...], tuple[str, ...]]) -> Iterator[Any]:
    """Who came in this order; all are sent away at the end."""
    with ExitStack() as stack:
        come = []
        for sites, writes in who:
            before = len(leases._waiters)
            visitor = Visitor(leases, sites, writes)
            stack.callback(visitor.leave)
            come.append(visitor)
            while not visitor.is_in(0.005) and len(leases._waiters) == before:
                pass
        yield come


READS = (("gitlab",), ())
WRITES = (("gitlab",), ("gitlab",))
READS_REDDIT = (("reddit",), ())
WRITES_BOTH = (("gitlab", "reddit"), ("gitlab", "reddit"))


def test_readers_are_side_by_side() -> None:
    with visitors(leases(), READS, READS, READS) as all_three:
        assert all(one.is_in() for one in all_three)


@pytest.mark.parametrize(("first", "second"), [(WRITES, WRITES), (WRITES, READS), (READS, WRITES)])
def test_a_writer_is_alone(first: Any, second: Any) -> None:
    with visitors(leases(), first, second) as (one, other):
        assert one.is_in()
        assert not other.is_in(SOON)
        one.leave()
        assert other.is_in()


def test_two_replicas_take_two_writers_but_not_three() -> None:
    with visitors(leases(replicas=2), WRITES, WRITES, WRITES) as (one, two, three):
        assert one.is_in() and two.is_in()
        assert not three.is_in(SOON)
        assert one.lease.addresses != two.lease.addresses
        two.leave()
        assert three.is_in()
        assert three.lease.addresses == two.lease.addresses


def test_readers_spread_over_replicas() -> None:
    with visitors(leases(replicas=2), READS, READS) as (one, two):
        assert one.is_in() and two.is_in()
        assert one.lease.addresses != two.lease.addresses


def test_readers_do_not_overtake_a_writer_who_waits() -> None:
    with visitors(leases(), READS, WRITES, READS) as (reader, writer, late):
        assert not late.is_in(SOON)
        reader.leave()
        assert writer.is_in()
        assert not late.is_in(SOON)
        writer.leave()
        assert late.is_in()


def test_other_sites_are_not_held_up() -> None:
    with visitors(leases(), WRITES, READS_REDDIT) as (_, other):
        assert other.is_in()


def test_two_sites_are_taken_at_once_or_not_at_all() -> None:
    with visitors(leases(), READS, WRITES_BOTH, READS_REDDIT) as (reader, both, late):
        assert not both.is_in(SOON)
        assert not late.is_in(SOON)  # it came after
        reader.leave()
        assert both.is_in()
        both.leave()
        assert late.is_in()


def test_waiting_ends_at_the_deadline() -> None:
    turns = leases(timeout=SOON)
    with (
        turns.acquire(["gitlab"], ["gitlab"]),
        pytest.raises(InfraError, match=r"no free replica of gitlab \(1\) within 0.05 s"),
        turns.acquire(["gitlab"], []),
    ):
        pass
    with turns.acquire(["gitlab"], []):  # whoever gave up leaves no trace
        pass


def test_closing_ends_the_waiting() -> None:
    turns = leases()
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            with turns.acquire(["gitlab"], []):
                pass
        except InfraError as error:
            failed.append(error)

    with turns.acquire(["gitlab"], ["gitlab"]):
        thread = threading.Thread(target=wait)
        thread.start()
        turns.close()
        thread.join(WAIT)
    assert [str(error) for error in failed] == ["the suite is closed"]


# --- resets and faults ----------------------------------------------------------------------------


def play(turns: ReplicaPool, *writes: str, site: str = "gitlab", faulty: bool = False) -> None:
    with turns.acquire([site], writes) as lease:
        lease.has_fault = faulty


def test_a_replica_is_reset_at_first_and_after_so_many_writers() -> None:
    site = Site()
    turns = leases(site, reset=site.reset, reset_every=2)
    play(turns)
    assert len(site.resets) == 1  # what it held is not known
    play(turns, "gitlab")
    play(turns)
    play(turns, "gitlab")
    assert len(site.resets) == 1
    play(turns)  # a reader gets a fresh site too
    assert len(site.resets) == 2


def test_a_reset_is_alone_and_the_reader_who_had_it_is_not() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow_reset(replicas: Sequence[tuple[str, str]]) -> None:
        inside.set()
        assert go_on.wait(WAIT)

    turns = leases(reset=slow_reset)
    one = Visitor(turns, *READS)
    assert inside.wait(WAIT)
    other = Visitor(turns, *READS)
    assert not other.is_in(SOON)
    go_on.set()
    assert one.is_in() and other.is_in()
    one.leave()
    other.leave()


def test_reset_waits_for_all_replicas_that_are_reset_together() -> None:
    site = Site()
    turns = leases(site, reset=site.reset, reset_group_key=lambda *replica: "one server")
    play(turns)
    assert site.resets == ["http://gitlab-0", "http://reddit-0"]
    with visitors(turns, READS_REDDIT, WRITES) as (reader, writer):
        assert reader.is_in() and writer.is_in()  # one of each site, side by side
        writer.leave()
        with visitors(turns, READS, READS_REDDIT) as (here, there):
            assert not here.is_in(SOON)  # the reset would end the session of the reader
            assert not there.is_in(SOON)  # so that readers cannot put it off for ever
            reader.leave()
            assert here.is_in() and there.is_in()
    assert len(site.resets) == 4


def test_failed_reset_of_several_replicas_frees_them() -> None:
    site = Site(reset_fails=True)
    turns = leases(site, reset=site.reset, reset_group_key=lambda *replica: "one server")
    with pytest.raises(InfraError, match="no reset"):
        play(turns)
    site.reset_fails = False
    play(turns, site="reddit")
    play(turns)
    assert len(site.resets) == 4


def test_a_failed_reset_is_tried_again() -> None:
    site = Site(reset_fails=True)
    turns = leases(site, reset=site.reset)
    for _ in range(2):
        with pytest.raises(InfraError, match="no reset"):
            play(turns)
    site.reset_fails = False
    play(turns)
    play(turns)
    assert len(site.resets) == 3


def test_sites_that_cannot_be_reset_never_are() -> None:
    site = Site()
    play(leases(site, reset=site.reset, resettable_sites=("reddit",)))
    assert site.resets == []


def test_after_a_fault_the_replica_is_asked_before_it_is_used_again() -> None:
    site = Site(wrong="gitlab answered 502")
    turns = leases(site)
    play(turns, faulty=True)
    for _ in range(2):
        with pytest.raises(InfraError, match="answered 502"):
            play(turns)
    site.wrong = None
    play(turns)
    play(turns)
    assert len(site.probes) == 3
