"""Tests of optimizer steps, initialization and loading on meshes."""

from __future__ import annotations

import pytest

from tests.devices import run_on_eight_devices

MESHES = ("8x1x1", "2x2x2", "1x2x4")  # data, fsdp, tensor


@pytest.fixture(scope="module")
def results():
    return run_on_eight_devices("tests.learn.sharded", *MESHES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mesh", MESHES)
def test_sharded_step_matches_single_device(results, mesh):
    result = results[mesh]
    assert result["loss"] < 1e-6
    assert result["grad_norm"] < 1e-5
    assert result["moments"] < 1e-6
    assert result["params"] < 1e-4  # Adam divides by the root of a small number
    assert result["keeps_shardings"]
    assert (
        result["num_sharded_params"] == 0 if mesh == "8x1x1" else result["num_sharded_params"] > 4
    )


@pytest.mark.timeout(600)
def test_sharded_adapter_step_matches_single_device(results):
    result = results["adapters"]
    assert result["loss"] < 1e-6
    assert result["grad_norm"] < 1e-5
    assert result["params"] < 1e-4
    assert result["num_sharded_params"] > 4


@pytest.mark.timeout(600)
def test_sharded_decoupled_step_matches_single_device(results):
    result = results["decoupled"]
    assert 0 < result["importance_capped_fraction"] < 1, (
        "some importance weights must exceed the cap"
    )
    assert result["logp"] < 1e-5
    assert result["metrics"] < 1e-4
    assert result["params"] < 1e-4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mesh", MESHES)
def test_sharded_init_and_load_match_single_device(results, mesh):
    assert results[mesh]["load"] == 0
    assert results[mesh]["load_has_shardings"]
    assert results[mesh]["init"] < 1e-8  # params are about 0.02
    assert results[mesh]["init_has_shardings"]
