"""Who may be on which replica of a site: readers side by side, a writer alone.

The outcome of a run is so that of some run in which the tasks that write were played one after the
other on each replica. First come, first served on every site, so that nobody starves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from webagent_jax.suites.webarena.sites import Addresses
from webagent_jax.types import InfraError


@dataclass(eq=False)
class Replica:
    """One copy of a site, and who is on it."""

    site: str
    address: str
    stale: bool = False  # to be reset before the next episode
    writes: int = 0  # episodes since the last reset that may have changed it
    suspect: bool = False  # the last episode ended by a fault: to be asked whether it is well
    readers: int = 0
    writer: bool = False

    def is_free(self, alone: bool) -> bool:
        """For a reader, or for one who must be alone, as whoever resets it must be."""
        return not self.writer and not (self.readers and (alone or self.stale))


_Group = tuple[Replica, ...]
"""Replicas that are reset together."""


@dataclass
class Lease:
    """The replicas that one episode is played on."""

    replicas: Mapping[str, Replica]  # by site
    writes: frozenset[str]  # sites that the episode may change
    alone: set[str] = field(default_factory=set)  # sites on whose replica it is alone
    resets: set[_Group] = field(default_factory=set)  # to be done first, alone on all of them
    faulty: bool = False  # set by whoever saw the sites fail

    @property
    def addresses(self) -> dict[str, str]:
        return {site: replica.address for site, replica in self.replicas.items()}

    @property
    def cleared(self) -> list[Replica]:
        """Replicas that it holds for the sake of the resets alone."""
        chosen = self.replicas.values()
        return [replica for group in self.resets for replica in group if replica not in chosen]


@dataclass(frozen=True, eq=False)
class _Turn:
    """Somebody who waits."""

    sites: frozenset[str]
    writes: frozenset[str]


class Leases:
    """Hands out replicas. Every method may be called from any thread.

    Args:
        addresses: the replicas of each site.
        timeout: seconds that an episode waits for its turn at most.
        reset: brings (site, address) pairs back to their first state; None when there is no way to.
        reset_together: what replicas that are reset together have in common; None: each by itself.
        reset_every: writing episodes on a replica between two resets.
        resettable: the sites that are ever reset. What they hold at first is not known, so each of
            their replicas is reset before its first episode.
        probe: what is wrong with a replica; None when it is well.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        timeout: float,
        reset: Callable[[Sequence[tuple[str, str]]], None] | None,
        reset_every: int,
        resettable: Sequence[str],
        probe: Callable[[str, str], str | None],
        reset_together: Callable[[str, str], str] | None = None,
    ) -> None:
        self._timeout = timeout
        self._reset, self._reset_every, self._probe = reset, reset_every, probe
        self._replicas = {
            site: [Replica(site, at) for at in replicas] for site, replicas in addresses.items()
        }
        self._together = _grouped(self._replicas, reset_together)
        for replica, group in self._together.items():
            replica.stale = reset is not None and any(r.site in resettable for r in group)
        self._changed = threading.Condition()
        self._waiting: list[_Turn] = []  # in the order they came
        self._closed = False

    @contextmanager
    def held(self, sites: Sequence[str], writes: Sequence[str]) -> Iterator[Lease]:
        """A replica of each of the sites, well, fresh where it was due, until the block is left.

        Args:
            sites: all that the episode needs.
            writes: those among them that it may change, where it is let alone.

        Raises:
            InfraError: no turn in time, or a replica that is not well or could not be reset.
        """
        lease = self._take(_Turn(frozenset(sites), frozenset(writes)))
        try:
            self._prepare(lease)
            self._share(lease)
            yield lease
        finally:
            self._give_back(lease)

    def close(self) -> None:
        """Whoever waits gets an InfraError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, turn: _Turn) -> Lease:
        end = time.monotonic() + self._timeout
        with self._changed:
            self._waiting.append(turn)
            try:
                while (lease := self._possible(turn)) is None:
                    left = end - time.monotonic()
                    if self._closed:
                        raise InfraError("the suite is closed")
                    if left <= 0:
                        raise InfraError(self._late(turn))
                    self._changed.wait(left)
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
            for site, replica in lease.replicas.items():
                replica.writer = site in lease.alone
                replica.readers += site not in lease.alone
            for replica in lease.cleared:
                replica.writer = True
            return lease

    def _possible(self, turn: _Turn) -> Lease | None:
        """The least busy replica of each site; None as long as it is another's turn."""
        earlier = self._waiting[: self._waiting.index(turn)]
        if any(other.sites & turn.sites for other in earlier):
            return None
        chosen = {}
        for site in sorted(turn.sites):
            free = [r for r in self._replicas[site] if r.is_free(alone=site in turn.writes)]
            if not free:
                return None
            chosen[site] = min(free, key=lambda replica: (replica.stale, replica.readers))
        alone = {site for site, r in chosen.items() if site in turn.writes or r.stale}
        resets = {self._together[r] for r in chosen.values() if r.stale}
        lease = Lease(chosen, turn.writes, alone, resets)
        return lease if all(r.is_free(alone=True) for r in lease.cleared) else None

    def _prepare(self, lease: Lease) -> None:
        for group in lease.resets:
            assert self._reset is not None
            self._reset([(replica.site, replica.address) for replica in group])
            for replica in group:
                replica.stale, replica.suspect, replica.writes = False, False, 0
        for replica in lease.replicas.values():
            if replica.suspect:
                wrong = self._probe(replica.site, replica.address)
                if wrong:
                    raise InfraError(wrong)
                replica.suspect = False

    def _share(self, lease: Lease) -> None:
        """Lets readers in where only the reset had to be alone."""
        with self._changed:
            for site in lease.alone - lease.writes:
                lease.replicas[site].writer = False
                lease.replicas[site].readers += 1
            lease.alone &= lease.writes
            self._let_go(lease)
            self._changed.notify_all()

    @staticmethod
    def _let_go(lease: Lease) -> None:
        for replica in lease.cleared:
            replica.writer = False
        lease.resets.clear()

    def _give_back(self, lease: Lease) -> None:
        with self._changed:
            self._let_go(lease)
            for site, replica in lease.replicas.items():
                if site in lease.alone:
                    replica.writer = False
                else:
                    replica.readers -= 1
                replica.suspect |= lease.faulty
                if site in lease.writes and self._reset is not None and not replica.stale:
                    replica.writes += 1
                    if replica.writes >= self._reset_every:
                        for each in self._together[replica]:
                            each.stale = True
            self._changed.notify_all()

    def _late(self, turn: _Turn) -> str:
        listed = ", ".join(f"{site} ({len(self._replicas[site])})" for site in sorted(turn.sites))
        return (
            f"no turn within {self._timeout:g} s on the replicas of {listed}: add replicas, "
            "lower rollout.contexts or raise suite.webarena.turn_timeout"
        )


def _grouped(
    replicas: Mapping[str, Sequence[Replica]], key: Callable[[str, str], str] | None
) -> Mapping[Replica, _Group]:
    """Return the group of each replica, itself included."""
    every = [replica for listed in replicas.values() for replica in listed]
    if key is None:
        return {replica: (replica,) for replica in every}
    groups: dict[str, list[Replica]] = {}
    for replica in every:
        groups.setdefault(key(replica.site, replica.address), []).append(replica)
    return {replica: tuple(group) for group in groups.values() for replica in group}
