"""Tests of the replica pool: shared reads, exclusive writes, resets, faults, timeouts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.suites.webarena_sites import make_row, page_target
from webagent_jax import distributed
from webagent_jax.config import ConfigError, RunConfig, SuiteConfig, WebArenaConfig
from webagent_jax.suites.webarena import read
from webagent_jax.suites.webarena.replicas import (
    ReplicaLease,
    ReplicaPool,
    check_disjoint,
    exclusive_resources,
)
from webagent_jax.train.grpo import train_grpo
from webagent_jax.types import InfraError

TIMEOUT = 10.0  # seconds; upper bound for events that must happen
SHORT_WAIT = 0.05  # seconds; wait for events that must not happen


@dataclass
class FakeHooks:
    """Reset and probe hooks that record their calls."""

    resets: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    health_error: str | None = None
    reset_fails: bool = False

    def reset(self, replicas: Sequence[tuple[str, str]]) -> None:
        self.resets += [address for _, address in replicas]
        if self.reset_fails:
            raise InfraError("no reset")

    def probe(self, site: str, address: str) -> str | None:
        self.probes.append(address)
        return self.health_error


def make_pool(hooks: FakeHooks | None = None, replicas: int = 1, **options: Any) -> ReplicaPool:
    hooks = hooks or FakeHooks()
    addresses = {
        name: [f"http://{name}-{i}" for i in range(replicas)] for name in ("gitlab", "reddit")
    }
    defaults: dict[str, Any] = {
        "timeout": TIMEOUT,
        "reset": None,
        "reset_every": 1,
        "resettable_sites": ("gitlab", "reddit"),
        "probe": hooks.probe,
    }
    return ReplicaPool(addresses, **(defaults | options))


class LeaseThread:
    """Thread that acquires a lease and holds it until `release` is called."""

    def __init__(self, pool: ReplicaPool, sites: tuple[str, ...], writes: tuple[str, ...] = ()):
        self._lease_event, self._release_event = threading.Event(), threading.Event()
        self.lease: ReplicaLease | None = None
        self._thread = threading.Thread(target=self._run, args=(pool, sites, writes))
        self._thread.start()

    def _run(self, pool: ReplicaPool, sites: tuple[str, ...], writes: tuple[str, ...]) -> None:
        with pool.acquire(sites, writes) as self.lease:
            self._lease_event.set()
            assert self._release_event.wait(TIMEOUT)

    def has_lease(self, timeout: float = TIMEOUT) -> bool:
        return self._lease_event.wait(timeout)

    def release(self) -> None:
        self._release_event.set()
        self._thread.join(TIMEOUT)


@contextmanager
def lease_threads(
    pool: ReplicaPool, *requests: tuple[tuple[str, ...], tuple[str, ...]]
) -> Iterator[Any]:
    """Start one thread per request in this order; release all leases at the end."""
    with ExitStack() as stack:
        threads = []
        for sites, writes in requests:
            num_waiters = len(pool._waiters)
            thread = LeaseThread(pool, sites, writes)
            stack.callback(thread.release)
            threads.append(thread)
            while not thread.has_lease(0.005) and len(pool._waiters) == num_waiters:
                pass
        yield threads


READS = (("gitlab",), ())
WRITES = (("gitlab",), ("gitlab",))
READS_REDDIT = (("reddit",), ())
WRITES_BOTH = (("gitlab", "reddit"), ("gitlab", "reddit"))


def test_readers_share_replica() -> None:
    with lease_threads(make_pool(), READS, READS, READS) as readers:
        assert all(reader.has_lease() for reader in readers)


@pytest.mark.parametrize(("first", "second"), [(WRITES, WRITES), (WRITES, READS), (READS, WRITES)])
def test_writer_has_exclusive_access(first: Any, second: Any) -> None:
    with lease_threads(make_pool(), first, second) as (one, other):
        assert one.has_lease()
        assert not other.has_lease(SHORT_WAIT)
        one.release()
        assert other.has_lease()


def test_two_replicas_admit_two_writers() -> None:
    with lease_threads(make_pool(replicas=2), WRITES, WRITES, WRITES) as (one, two, three):
        assert one.has_lease() and two.has_lease()
        assert not three.has_lease(SHORT_WAIT)
        assert one.lease.addresses != two.lease.addresses
        two.release()
        assert three.has_lease()
        assert three.lease.addresses == two.lease.addresses


def test_readers_spread_over_replicas() -> None:
    with lease_threads(make_pool(replicas=2), READS, READS) as (one, two):
        assert one.has_lease() and two.has_lease()
        assert one.lease.addresses != two.lease.addresses


def test_readers_do_not_overtake_pending_writer() -> None:
    with lease_threads(make_pool(), READS, WRITES, READS) as (reader, writer, late_reader):
        assert not late_reader.has_lease(SHORT_WAIT)
        reader.release()
        assert writer.has_lease()
        assert not late_reader.has_lease(SHORT_WAIT)
        writer.release()
        assert late_reader.has_lease()


def test_writer_does_not_block_other_sites() -> None:
    with lease_threads(make_pool(), WRITES, READS_REDDIT) as (_, other):
        assert other.has_lease()


def test_lease_of_two_sites_is_atomic() -> None:
    with lease_threads(make_pool(), READS, WRITES_BOTH, READS_REDDIT) as (
        reader,
        writer,
        late_reader,
    ):
        assert not writer.has_lease(SHORT_WAIT)
        assert not late_reader.has_lease(SHORT_WAIT)  # requested later
        reader.release()
        assert writer.has_lease()
        writer.release()
        assert late_reader.has_lease()


def test_acquire_times_out() -> None:
    pool = make_pool(timeout=SHORT_WAIT)
    with (
        pool.acquire(["gitlab"], ["gitlab"]),
        pytest.raises(InfraError, match=r"no free replica of gitlab \(1\) within 0.05 s"),
        pool.acquire(["gitlab"], []),
    ):
        pass
    with pool.acquire(["gitlab"], []):  # the timed-out request left no state
        pass


def test_close_aborts_pending_acquire() -> None:
    pool = make_pool()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            with pool.acquire(["gitlab"], []):
                pass
        except InfraError as error:
            errors.append(error)

    with pool.acquire(["gitlab"], ["gitlab"]):
        thread = threading.Thread(target=wait)
        thread.start()
        pool.close()
        thread.join(TIMEOUT)
    assert [str(error) for error in errors] == ["the suite is closed"]


# --- resets and faults ----------------------------------------------------------------------------


def run_episode(
    pool: ReplicaPool, *writes: str, site: str = "gitlab", has_fault: bool = False
) -> None:
    with pool.acquire([site], writes) as lease:
        lease.has_fault = has_fault


def test_replica_resets_initially_and_after_reset_every_writers() -> None:
    hooks = FakeHooks()
    pool = make_pool(hooks, reset=hooks.reset, reset_every=2)
    run_episode(pool)
    assert len(hooks.resets) == 1  # the initial state is unknown
    run_episode(pool, "gitlab")
    run_episode(pool)
    run_episode(pool, "gitlab")
    assert len(hooks.resets) == 1
    run_episode(pool)  # readers also get a reset site
    assert len(hooks.resets) == 2


def test_reset_is_exclusive_and_later_readers_share_replica() -> None:
    reset_start, reset_end = threading.Event(), threading.Event()

    def slow_reset(replicas: Sequence[tuple[str, str]]) -> None:
        reset_start.set()
        assert reset_end.wait(TIMEOUT)

    pool = make_pool(reset=slow_reset)
    one = LeaseThread(pool, *READS)
    assert reset_start.wait(TIMEOUT)
    other = LeaseThread(pool, *READS)
    assert not other.has_lease(SHORT_WAIT)
    reset_end.set()
    assert one.has_lease() and other.has_lease()
    one.release()
    other.release()


def test_joint_reset_waits_for_all_replicas() -> None:
    hooks = FakeHooks()
    pool = make_pool(hooks, reset=hooks.reset, reset_group_key=lambda *replica: "one server")
    run_episode(pool)
    assert hooks.resets == ["http://gitlab-0", "http://reddit-0"]
    with lease_threads(pool, READS_REDDIT, WRITES) as (reader, writer):
        assert reader.has_lease() and writer.has_lease()  # replicas of different sites
        writer.release()
        with lease_threads(pool, READS, READS_REDDIT) as (gitlab_reader, reddit_reader):
            # The reset would end the session of the first reader.
            assert not gitlab_reader.has_lease(SHORT_WAIT)
            # Later readers must not delay the reset forever.
            assert not reddit_reader.has_lease(SHORT_WAIT)
            reader.release()
            assert gitlab_reader.has_lease() and reddit_reader.has_lease()
    assert len(hooks.resets) == 4


def test_joint_reset_uses_idle_machine() -> None:
    hooks = FakeHooks()
    pool = make_pool(
        hooks, replicas=2, reset=hooks.reset, reset_group_key=lambda site, address: address[-1]
    )
    # After these episodes only the shared replica of reddit is in use, and both machines need a
    # reset: the first one must wait for the reader.
    with lease_threads(pool, READS_REDDIT, WRITES, WRITES) as (reader, *writers):
        assert reader.has_lease() and all(writer.has_lease() for writer in writers)
        for writer in writers:
            writer.release()
        with lease_threads(pool, READS) as (other,):
            assert other.has_lease()
            assert other.lease.addresses == {"gitlab": "http://gitlab-1"}


def test_failed_joint_reset_releases_replicas() -> None:
    hooks = FakeHooks(reset_fails=True)
    pool = make_pool(hooks, reset=hooks.reset, reset_group_key=lambda *replica: "one server")
    with pytest.raises(InfraError, match="no reset"):
        run_episode(pool)
    hooks.reset_fails = False
    run_episode(pool, site="reddit")
    run_episode(pool)
    assert len(hooks.resets) == 4


def test_failed_reset_is_retried() -> None:
    hooks = FakeHooks(reset_fails=True)
    pool = make_pool(hooks, reset=hooks.reset)
    for _ in range(2):
        with pytest.raises(InfraError, match="no reset"):
            run_episode(pool)
    hooks.reset_fails = False
    run_episode(pool)
    run_episode(pool)
    assert len(hooks.resets) == 3


def test_non_resettable_site_is_not_reset() -> None:
    hooks = FakeHooks()
    run_episode(make_pool(hooks, reset=hooks.reset, resettable_sites=("reddit",)))
    assert hooks.resets == []


def test_faulty_replica_is_probed_before_reuse() -> None:
    hooks = FakeHooks(health_error="gitlab responded with 502")
    pool = make_pool(hooks)
    run_episode(pool, has_fault=True)
    for _ in range(2):
        with pytest.raises(InfraError, match="responded with 502"):
            run_episode(pool)
    hooks.health_error = None
    run_episode(pool)
    run_episode(pool)
    assert len(hooks.probes) == 3


# --- several processes ----------------------------------------------------------------------------

SITES = ("gitlab", "reddit", "map")


def resources_of_process(
    tmp_path: Path, port: int, host: str = "gitlab.example", **options: Any
) -> tuple[str, ...]:
    """Return the resources of training: tasks change gitlab and read reddit and a map."""
    rows = [
        make_row(0, "gitlab", "map", program_html=[page_target("last", "x")]),
        make_row(1, "reddit", reference_answers={"exact_match": "42"}),
    ]
    (tmp_path / "tasks.json").write_text(json.dumps(rows))
    config = WebArenaConfig(train_file=str(tmp_path / "tasks.json"), **options)
    environ = {site.upper(): f"http://{site}.example:{port}" for site in SITES}
    environ["GITLAB"] = f"http://{host}:{port}"
    return exclusive_resources(config, *read(config, (), environ))


def test_processes_cannot_share_modified_site(tmp_path: Path) -> None:
    first = resources_of_process(tmp_path, 8023)
    check_disjoint([first, resources_of_process(tmp_path, 8123)])
    assert first == ("gitlab at http://gitlab.example:8023",)  # the others are only read
    with pytest.raises(ConfigError, match=r"0 and 2 share gitlab at http://gitlab.example:8023"):
        check_disjoint([first, resources_of_process(tmp_path, 8123), first])


def test_processes_cannot_share_reset(tmp_path: Path) -> None:
    url = "http://{host}/reset?port={port}"
    first, second = (resources_of_process(tmp_path, p, reset_url=url) for p in (8023, 8123))
    check_disjoint([first, second])
    # Both sites are reset before their first episode; the map cannot be reset.
    assert [name.split()[0] for name in first] == ["gitlab", "reddit", "the", "the"]
    url = "http://{host}/reset"
    first, second = (resources_of_process(tmp_path, p, reset_url=url) for p in (8023, 8123))
    with pytest.raises(ConfigError, match=r"share the reset http://gitlab.example/reset:"):
        check_disjoint([first, second])


def test_processes_of_different_machines_have_different_local_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = []
    for machine in ("a", "b", "a"):
        monkeypatch.setattr("socket.gethostname", lambda machine=machine: machine)
        resources.append(resources_of_process(tmp_path, 8023, host="localhost"))
    check_disjoint(resources[:2])
    with pytest.raises(ConfigError, match=r"share gitlab at http://localhost:8023 of a:"):
        check_disjoint(resources)


def test_train_grpo_rejects_shared_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.json").write_text(
        json.dumps([make_row(0, "gitlab", program_html=[page_target("last", "x")])])
    )
    webarena = WebArenaConfig(train_file=str(tmp_path / "tasks.json"))
    cfg = RunConfig(suite=SuiteConfig(name="webarena_lite", webarena=webarena))
    monkeypatch.setenv("WA_GITLAB", "http://gitlab.example:8023")
    monkeypatch.setattr(distributed, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "allgather", lambda value: [value, value])
    with pytest.raises(ConfigError, match=r"processes 0 and 1 share gitlab at"):
        train_grpo(cfg, tmp_path / "run")
    assert not (tmp_path / "run").exists()
