"""On a mesh an update is the same update."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "sizes",
    [(8, 1, 1), (1, 8, 1), (2, 4, 1), (2, 2, 2), (1, 2, 4)],
    ids=lambda s: "x".join(map(str, s)),
)
def test_an_update_on_eight_devices_is_that_on_one(sizes):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.learn.sharded", *map(str, sizes)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["loss"] < 1e-6
    assert found["grad_norm"] < 1e-5
    assert found["moments"] < 1e-6
    assert found["params"] < 1e-4  # Adam divides by the root of a small number
    assert found["kept"]
    assert found["cut"] == 0 if sizes == (8, 1, 1) else found["cut"] > 4
