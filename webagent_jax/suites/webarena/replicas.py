"""Readers-writer locks on the replicas of sites: concurrent readers or one exclusive writer.

The result of a run equals that of some run in which the writing tasks of each replica run one after
the other. Every site serves episodes in the order of their requests, which prevents starvation.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from webagent_jax.config import ConfigError, WebArenaConfig
from webagent_jax.suites import task_file
from webagent_jax.suites.webarena.catalog import ACCOUNT_SITES, Catalog, modified_sites
from webagent_jax.suites.webarena.sites import Addresses, ResetHook
from webagent_jax.types import InfraError


@dataclass(eq=False)
class Replica:
    """Copy of a site and the state of its lock."""

    site: str
    address: str
    needs_reset: bool = False  # whether the next episode must reset it first
    num_writes: int = 0  # writing episodes since the last reset
    needs_probe: bool = False  # whether to check its health, after an episode with a fault
    num_readers: int = 0  # episodes that read it at present
    has_writer: bool = False  # whether an episode or a reset has exclusive access

    def is_free(self, is_exclusive: bool) -> bool:
        """Return whether an episode can use it: a reader, or a writer if `is_exclusive`."""
        return not self.has_writer and not (self.num_readers and is_exclusive)


_ResetGroup = tuple[Replica, ...]
"""Replicas that one reset restores."""


@dataclass
class ReplicaLease:
    """Replicas that one episode uses."""

    replicas: Mapping[str, Replica]  # replicas by site
    modified_sites: frozenset[str]  # sites that the episode may modify
    exclusive_sites: set[str]  # sites with exclusive access
    reset_groups: set[_ResetGroup]  # groups to reset before the episode, with exclusive access
    has_fault: bool = False  # whether the episode observed a fault of the sites

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the replicas by site."""
        return {site: replica.address for site, replica in self.replicas.items()}

    @property
    def reset_only_replicas(self) -> list[Replica]:
        """Replicas that are locked only for the resets."""
        leased = self.replicas.values()
        return [
            replica for group in self.reset_groups for replica in group if replica not in leased
        ]


@dataclass(frozen=True, eq=False)
class _Waiter:
    """Episode that waits for replicas."""

    sites: frozenset[str]
    writes: frozenset[str]


class ReplicaPool:
    """Pool that leases replicas to episodes; thread-safe.

    Args:
        addresses: addresses of the replicas of each site.
        timeout: maximum number of seconds that an episode waits.
        reset: restores the initial state of (site, address) pairs; None if that is not possible.
        reset_every: number of writing episodes on a replica between two resets.
        resettable_sites: sites to reset. Their initial state is unknown, so that each of their
            replicas is reset before its first episode.
        probe: returns the problem of a replica; None if it is healthy.
        reset_group_key: returns a key that is equal for replicas that are reset together; None to
            reset each replica on its own.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        timeout: float,
        reset: Callable[[Sequence[tuple[str, str]]], None] | None,
        reset_every: int,
        resettable_sites: Sequence[str],
        probe: Callable[[str, str], str | None],
        reset_group_key: Callable[[str, str], str] | None = None,
    ) -> None:
        self._timeout = timeout
        self._reset, self._reset_every, self._probe = reset, reset_every, probe
        self._replicas = {
            site: [Replica(site, address) for address in replicas]
            for site, replicas in addresses.items()
        }
        self._reset_groups = _group_by_reset(self._replicas, reset_group_key)
        for replica, group in self._reset_groups.items():
            # A reset restores all sites of its group, so one that can be modified is enough.
            replica.needs_reset = reset is not None and any(
                r.site in resettable_sites for r in group
            )
        self._condition = threading.Condition()
        self._waiters: list[_Waiter] = []  # in the order of their requests
        self._closed = False

    @contextmanager
    def acquire(self, sites: Sequence[str], writes: Sequence[str]) -> Iterator[ReplicaLease]:
        """Return a context that leases one replica of each site, healthy and reset if necessary.

        Args:
            sites: sites that the episode needs.
            writes: those of them that it may modify and needs exclusively.

        Raises:
            InfraError: no replica became free in time, or one is not healthy or cannot be reset.
        """
        # The locks are held during the reset and the probe, which run without the condition.
        lease = self._acquire(_Waiter(frozenset(sites), frozenset(writes)))
        try:
            self._reset_and_probe(lease)
            self._downgrade(lease)
            yield lease
        finally:
            self._release(lease)

    def close(self) -> None:
        """Close the pool; calls that wait in `acquire` raise InfraError."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _acquire(self, waiter: _Waiter) -> ReplicaLease:
        end = time.monotonic() + self._timeout
        with self._condition:
            self._waiters.append(waiter)
            try:
                # Every release wakes all waiters; only those whose sites are free continue.
                while (lease := self._try_acquire(waiter)) is None:
                    remaining = end - time.monotonic()
                    if self._closed:
                        raise InfraError("the suite is closed")
                    if remaining <= 0:
                        raise InfraError(self._timeout_message(waiter))
                    self._condition.wait(remaining)
            finally:
                # Later waiters for the same sites may be first now, even after a timeout.
                self._waiters.remove(waiter)
                self._condition.notify_all()
            # All locks are taken in one step under the condition, so episodes cannot deadlock.
            for site, replica in lease.replicas.items():
                replica.has_writer = site in lease.exclusive_sites
                replica.num_readers += site not in lease.exclusive_sites
            for replica in lease.reset_only_replicas:
                replica.has_writer = True
            return lease

    def _try_acquire(self, waiter: _Waiter) -> ReplicaLease | None:
        """Return a lease of the least busy replica of each site; None if the episode must wait."""
        # An earlier waiter for a common site goes first, which keeps the order of arrival per site.
        earlier_waiters = self._waiters[: self._waiters.index(waiter)]
        if any(other.sites & waiter.sites for other in earlier_waiters):
            return None
        selected = {}
        for site in sorted(waiter.sites):
            free = [r for r in self._replicas[site] if self._is_available(r, site in waiter.writes)]
            if not free:
                return None
            # Prefer a replica without a reset, then the one with the fewest readers.
            selected[site] = min(
                free, key=lambda replica: (replica.needs_reset, replica.num_readers)
            )
        # A reset needs exclusive access even for a reader; `_downgrade` returns it afterwards.
        exclusive_sites = {
            site for site, r in selected.items() if site in waiter.writes or r.needs_reset
        }
        resets = {self._reset_groups[r] for r in selected.values() if r.needs_reset}
        return ReplicaLease(selected, waiter.writes, exclusive_sites, resets)

    def _is_available(self, replica: Replica, is_exclusive: bool) -> bool:
        """Return whether an episode can use a replica now, after a reset if it needs one."""
        if replica.needs_reset:
            # The reset restores the complete group, so no episode may use any replica of it.
            return all(r.is_free(is_exclusive=True) for r in self._reset_groups[replica])
        return replica.is_free(is_exclusive)

    def _reset_and_probe(self, lease: ReplicaLease) -> None:
        for group in lease.reset_groups:
            assert self._reset is not None
            self._reset([(replica.site, replica.address) for replica in group])
            for replica in group:
                replica.needs_reset, replica.needs_probe, replica.num_writes = False, False, 0
        for replica in lease.replicas.values():
            if replica.needs_probe:
                problem = self._probe(replica.site, replica.address)
                if problem:
                    # The flag stays set, so that the next episode probes again.
                    raise InfraError(problem)
                replica.needs_probe = False

    def _downgrade(self, lease: ReplicaLease) -> None:
        """Downgrade locks that only the reset needed exclusively to shared ones."""
        with self._condition:
            for site in lease.exclusive_sites - lease.modified_sites:
                lease.replicas[site].has_writer = False
                lease.replicas[site].num_readers += 1
            lease.exclusive_sites &= lease.modified_sites
            self._release_reset_groups(lease)
            self._condition.notify_all()

    @staticmethod
    def _release_reset_groups(lease: ReplicaLease) -> None:
        for replica in lease.reset_only_replicas:
            replica.has_writer = False
        lease.reset_groups.clear()

    def _release(self, lease: ReplicaLease) -> None:
        with self._condition:
            self._release_reset_groups(lease)
            for site, replica in lease.replicas.items():
                if site in lease.exclusive_sites:
                    replica.has_writer = False
                else:
                    replica.num_readers -= 1
                replica.needs_probe |= lease.has_fault
                if (
                    # Counted at the end of the episode, even if it failed: it may have written.
                    site in lease.modified_sites
                    and self._reset is not None
                    and not replica.needs_reset
                ):
                    replica.num_writes += 1
                    if replica.num_writes >= self._reset_every:
                        for member in self._reset_groups[replica]:
                            member.needs_reset = True
            self._condition.notify_all()

    def _timeout_message(self, waiter: _Waiter) -> str:
        sites = ", ".join(f"{site} ({len(self._replicas[site])})" for site in sorted(waiter.sites))
        return (
            f"no free replica of {sites} within {self._timeout:g} s: add replicas, "
            "lower rollout.max_concurrent_episodes or raise suite.webarena.replica_timeout"
        )


def exclusive_resources(
    config: WebArenaConfig, tasks: Catalog, addresses: Addresses
) -> tuple[str, ...]:
    """Return the replicas that training needs for itself, and the addresses of their resets.

    Without resets these are the replicas of sites that training tasks may modify. With resets they
    are those of all sites that a reset restores: each replica is reset before its first episode.
    """
    train_tasks = tasks.splits.get("train", {}).values()
    sites = {
        site
        for task in train_tasks
        for site in (task.sites if config.reset_url else modified_sites(task))
        if _is_resettable(site)
    }
    replicas = [(site, address) for site in sorted(sites) for address in addresses[site]]
    names = [f"{site} at {address}{_local_suffix(address)}" for site, address in replicas]
    if config.reset_url:
        # One reset may restore the replicas of several processes.
        url_of = ResetHook(config.reset_url, config.reset_timeout).url_of
        urls = [url_of(site, address) for site, address in replicas]
        names += dict.fromkeys(f"the reset {url}{_local_suffix(url)}" for url in urls)
    return tuple(names)


def check_disjoint(resources: Sequence[Sequence[str]]) -> None:
    """Check that the processes of a job share no replica, because each has its own locks.

    Args:
        resources: `exclusive_resources` of each process.

    Raises:
        ConfigError: two processes share one; the message names it.
    """
    owners: dict[str, int] = {}
    for process, names in enumerate(resources):
        for name in names:
            owner = owners.setdefault(name, process)
            if owner != process:
                raise ConfigError(
                    f"processes {owner} and {process} share {name}: tasks or resets of one would "
                    "change the site under the episodes of the other. Set other site addresses "
                    "in the environment of each process (docs/multi_process.md)"
                )


def _is_resettable(site: str) -> bool:
    """Return whether a reset restores a site: one with an account, or a site of your own."""
    return site in ACCOUNT_SITES or site not in task_file.SITES


def _local_suffix(url: str) -> str:
    """Return the name of this machine for a loopback address, which each machine has; else ""."""
    host = urlsplit(url).hostname or ""
    is_local = host in ("127.0.0.1", "::1") or f".{host}".endswith(".localhost")
    return f" of {socket.gethostname()}" if is_local else ""


def _group_by_reset(
    replicas: Mapping[str, Sequence[Replica]], key: Callable[[str, str], str] | None
) -> Mapping[Replica, _ResetGroup]:
    """Return the reset group of each replica, which includes the replica."""
    all_replicas = [replica for site_replicas in replicas.values() for replica in site_replicas]
    if key is None:
        return {replica: (replica,) for replica in all_replicas}
    groups: dict[str, list[Replica]] = {}
    for replica in all_replicas:
        groups.setdefault(key(replica.site, replica.address), []).append(replica)
    return {replica: tuple(group) for group in groups.values() for replica in group}
