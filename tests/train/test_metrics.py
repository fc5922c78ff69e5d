"""The numbers of an update."""

from __future__ import annotations

import mmap

import pytest

from webagent_jax.train import metrics


def test_hosts_become_one_record() -> None:
    here = {
        "episodes/total": 30.0,
        "episodes/infra_errors": 1.0,
        "reward": 0.5,
        "memory/process_mib": 700.0,
    }
    there = {
        "episodes/total": 10.0,
        "episodes/infra_errors": 2.0,
        "reward": 0.1,
        "memory/process_mib": 900.0,
    }
    assert metrics.merge_process_metrics([here, there]) == {
        "episodes/total": 40,
        "episodes/infra_errors": 3,
        "reward": pytest.approx(0.4),
        "memory/process_mib": 900,
    }
    assert metrics.merge_process_metrics([here | {"kl": 0.3}, there])["kl"] == 0.3


def test_memory_is_seen() -> None:
    before = metrics.memory_metrics()
    # Mapped, not allocated: the heap of the process may hold freed pages that an array would reuse.
    with mmap.mmap(-1, 256 * 2**20) as mapped:
        for start in range(0, len(mapped), mmap.PAGESIZE):
            mapped[start] = 1
        after = metrics.memory_metrics()
    for name in ("memory/process_mib", "memory/with_browsers_mib"):
        assert after[name] - before[name] == pytest.approx(256, abs=40)
    assert after["memory/with_browsers_mib"] >= after["memory/process_mib"] > 0
