"""An engine on several devices samples what it samples on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_an_engine_on_several_devices_samples_what_it_samples_on_one():
    ran = subprocess.run(
        [sys.executable, "-m", "tests.generate.sharded", "2", "4", "8"],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    for tensor, found in report.items():
        assert found["same"], tensor
        assert found["logp"] < 1e-4
        # Four key-value heads are too few for eight devices, which then hold all of them.
        assert found["cut"] == [int(tensor), int(tensor) if tensor != "8" else 1]
