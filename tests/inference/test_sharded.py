"""Tests of the engine on several devices."""

from __future__ import annotations

import pytest

from tests.devices import run_on_eight_devices


@pytest.mark.timeout(600)
def test_sharded_engine_matches_single_device_engine():
    arguments = ("4", "8", "2:rows", "2:transposed:int8", "2:gpu")
    report = run_on_eight_devices("tests.inference.sharded", *arguments)
    for argument, result in report.items():
        assert result["same"], argument
        assert result["logp"] < 1e-4
        # Eight devices cannot split four key-value heads: each of them contains all four.
        tensor = int(argument.partition(":")[0])
        heads = tensor if tensor != 8 else 1
        assert result["cut"] == [tensor, heads, heads]
