"""Tests of optimizer steps, initialization and loading on meshes."""

from __future__ import annotations

import functools

import pytest

from tests.devices import run_on_eight_devices

# Data, fsdp, tensor: all axes in one mesh, and meshes without one or two of them.
MESHES = (
    "2x2x2",
    pytest.param("8x1x1", marks=pytest.mark.slow),
    pytest.param("1x2x4", marks=pytest.mark.slow),
)


@pytest.fixture(scope="module")
def results():
    """Return a function that runs the comparisons of one mesh, each mesh once."""
    return functools.cache(lambda mesh: run_on_eight_devices("tests.learn.sharded", mesh))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mesh", MESHES)
def test_sharded_step_matches_single_device(results, mesh):
    result = results(mesh)[mesh]
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
    result = results("2x2x2")["adapters"]
    assert result["loss"] < 1e-6
    assert result["grad_norm"] < 1e-5
    assert result["params"] < 1e-4
    assert result["num_sharded_params"] > 4


@pytest.mark.timeout(600)
def test_copy_to_each_process_keeps_values_in_any_order_of_devices(results):
    result = results("2x2x2")["copies"]
    assert result["params"] == 0
    assert result["num_sharded_params"] > 4


@pytest.mark.timeout(600)
def test_policy_without_training_is_loaded_onto_devices_of_engine(results):
    result = results("2x2x2")["loaded"]
    assert result["num_devices"] == 4
    assert 0.25 < result["fraction"] < 0.35  # norms and key-value heads are replicated


@pytest.mark.timeout(600)
def test_sharded_decoupled_step_matches_single_device(results):
    result = results("2x2x2")["decoupled"]
    assert 0 < result["importance_capped_fraction"] < 1, (
        "some importance weights must exceed the cap"
    )
    assert result["logp"] < 1e-5
    assert result["metrics"] < 1e-4
    assert result["params"] < 1e-4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mesh", MESHES)
def test_sharded_init_and_load_match_single_device(results, mesh):
    result = results(mesh)[mesh]
    assert result["load"] == 0
    assert result["load_has_shardings"]
    assert result["init"] < 1e-8  # params are about 0.02
    assert result["init_has_shardings"]
