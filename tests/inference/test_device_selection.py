import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from tests.learn.tiny import MODEL, make_params
from webagent_jax.inference import Engine, device_selection, engine_shapes


@pytest.mark.parametrize("pool", [None, "3"])
def test_the_engine_of_a_small_policy_has_a_device_of_its_own(
    pool: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPROC", raising=False)
    if pool:
        monkeypatch.setenv("NPROC", pool)
    device_selection._single_thread_cpu_device.cache_clear()
    device = device_selection.select_device(MODEL)
    assert device.platform == "cpu"
    assert device not in jax.devices()
    assert device is device_selection.select_device(MODEL)  # all of them share it
    assert os.environ.get("NPROC") == pool
    array = jax.device_put(jnp.arange(3.0), device)
    assert array.devices() == {device}
    assert (jax.device_put(array * 2, jax.devices()[0]) == jnp.array([0.0, 2.0, 4.0])).all()


def test_several_hosts_keep_to_their_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen in tests/train/test_processes.py: "does not support cross-host device transfers"."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert device_selection.select_device(MODEL) is jax.local_devices()[0]


def test_a_large_policy_is_computed_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_shapes, "_CPU_CACHE_BYTES", 0)
    assert device_selection.select_device(MODEL) is jax.local_devices()[0]


def test_an_engine_hands_on_what_it_computed_there() -> None:
    with Engine(MODEL, make_params(0), slots=2, max_model_len=128) as engine:
        at = {leaf.sharding for leaf in jax.tree.leaves(engine._params)}
        reply = engine.submit([5, 6, 7], max_new_tokens=20, seed=1).result(timeout=120)
    assert at == {SingleDeviceSharding(device_selection.select_device(MODEL))}
    assert 1 <= len(reply.token_ids) <= 20
