"""Tests of the device selection of the engine."""

import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from tests.learn.tiny import MODEL, make_params
from webagent_jax.inference import Engine, device_selection, engine_shapes


@pytest.mark.parametrize("num_threads", [None, "3"])
def test_small_policy_selects_single_thread_device(
    num_threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPROC", raising=False)
    if num_threads:
        monkeypatch.setenv("NPROC", num_threads)
    device_selection._single_thread_cpu_device.cache_clear()
    device = device_selection.select_device(MODEL)
    assert device.platform == "cpu"
    assert device not in jax.devices()
    assert device is device_selection.select_device(MODEL)  # shared by all engines
    assert os.environ.get("NPROC") == num_threads
    array = jax.device_put(jnp.arange(3.0), device)
    assert array.devices() == {device}
    assert (jax.device_put(array * 2, jax.devices()[0]) == jnp.array([0.0, 2.0, 4.0])).all()


def test_several_processes_select_local_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX "does not support cross-host device transfers" (tests/train/test_processes.py)."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert device_selection.select_device(MODEL) is jax.local_devices()[0]


def test_large_policy_selects_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_shapes, "_CPU_CACHE_BYTES", 0)
    assert device_selection.select_device(MODEL) is jax.local_devices()[0]


def test_engine_params_are_on_selected_device() -> None:
    with Engine(MODEL, make_params(0), slots=2, max_model_len=128) as engine:
        shardings = {leaf.sharding for leaf in jax.tree.leaves(engine._params)}
        completion = engine.submit([5, 6, 7], max_new_tokens=20, seed=1).result(timeout=120)
    assert shardings == {SingleDeviceSharding(device_selection.select_device(MODEL))}
    assert 1 <= len(completion.token_ids) <= 20
