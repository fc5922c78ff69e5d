"""The numbers of an update."""

from __future__ import annotations

import numpy as np
import pytest

from webagent_jax.train import metrics


def test_hosts_become_one_record() -> None:
    here = {"episodes": 30.0, "infra": 1.0, "reward": 0.5, "memory/process_mib": 700.0}
    there = {"episodes": 10.0, "infra": 2.0, "reward": 0.1, "memory/process_mib": 900.0}
    assert metrics.merged([here, there]) == {
        "episodes": 40,
        "infra": 3,
        "reward": pytest.approx(0.4),
        "memory/process_mib": 900,
    }
    assert metrics.merged([here | {"kl": 0.3}, there])["kl"] == 0.3


def test_memory_is_seen() -> None:
    before = metrics.of_memory()
    held = np.ones(2**25)  # 256 MiB
    after = metrics.of_memory()
    for name in ("memory/process_mib", "memory/with_browsers_mib"):
        assert after[name] - before[name] == pytest.approx(held.nbytes / 2**20, abs=40)
    assert after["memory/with_browsers_mib"] >= after["memory/process_mib"] > 0
