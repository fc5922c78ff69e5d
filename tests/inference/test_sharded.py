"""Tests of the engine on several devices."""

from __future__ import annotations

import pytest

from tests.devices import run_on_eight_devices


@pytest.mark.timeout(600)
def test_sharded_engine_matches_single_device_engine():
    report = run_on_eight_devices("tests.inference.sharded", "2", "4", "8")
    for tensor, result in report.items():
        assert result["same"], tensor
        assert result["logp"] < 1e-4
        # Eight devices cannot split four key-value heads: each of them contains all four.
        heads = int(tensor) if tensor != "8" else 1
        assert result["cut"] == [int(tensor), heads, heads]
