"""On a mesh an update is the same update."""

from __future__ import annotations

import pytest

from tests.devices import run_on_eight_devices

MESHES = ("8x1x1", "2x4x1", "2x2x2", "1x2x4")  # data, fsdp, tensor


@pytest.fixture(scope="module")
def updates():
    return run_on_eight_devices("tests.learn.sharded", *MESHES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mesh", MESHES)
def test_an_update_on_eight_devices_is_that_on_one(updates, mesh):
    found = updates[mesh]
    assert found["loss"] < 1e-6
    assert found["grad_norm"] < 1e-5
    assert found["moments"] < 1e-6
    assert found["params"] < 1e-4  # Adam divides by the root of a small number
    assert found["kept"]
    assert found["cut"] == 0 if mesh == "8x1x1" else found["cut"] > 4


@pytest.mark.timeout(600)
def test_adapters_on_eight_devices_are_trained_as_on_one(updates):
    found = updates["adapters"]
    assert found["loss"] < 1e-6
    assert found["grad_norm"] < 1e-5
    assert found["params"] < 1e-4
    assert found["cut"] > 4


@pytest.mark.timeout(600)
def test_a_decoupled_update_on_eight_devices_is_that_on_one(updates):
    found = updates["decoupled"]
    assert 0 < found["importance_capped_fraction"] < 1, (
        "the draw must cross the cap, or this test shows little"
    )
    assert found["logp"] < 1e-5
    assert found["metrics"] < 1e-4
    assert found["params"] < 1e-4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mesh", MESHES)
def test_params_come_into_shards_as_they_come_whole(updates, mesh):
    assert updates[mesh]["read"] == 0
    assert updates[mesh]["read_in_place"]
    assert updates[mesh]["born"] < 1e-8  # of params of about 0.02
    assert updates[mesh]["born_in_place"]
