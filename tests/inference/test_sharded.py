"""An engine on several devices samples what it samples on one."""

from __future__ import annotations

import pytest

from tests.devices import run_on_eight_devices


@pytest.mark.timeout(600)
def test_an_engine_on_several_devices_samples_what_it_samples_on_one():
    report = run_on_eight_devices("tests.inference.sharded", "2", "4", "8")
    for tensor, found in report.items():
        assert found["same"], tensor
        assert found["logp"] < 1e-4
        # Four key-value heads are too few for eight devices, which then hold all of them.
        heads = int(tensor) if tensor != "8" else 1
        assert found["cut"] == [int(tensor), heads, heads]
