"""Tests of checkpoints: round trip, damage, and a kill during a save."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from webagent_jax.checkpoint import Checkpointer
from webagent_jax.learn import TrainState

OPTIMIZER = optax.adam(0.1)


def make_state(value: float) -> TrainState:
    params = {"w": jnp.full((3, 2), value), "layers": {"b": jnp.arange(4.0) + value}}
    return TrainState(jnp.asarray(int(value), jnp.int32), params, OPTIMIZER.init(params))


def assert_restored(checkpoint: tuple | None, value: float) -> None:
    assert checkpoint is not None
    state, loop_state = checkpoint
    jax.tree.map(np.testing.assert_array_equal, state, make_state(value))
    assert jax.tree.map(lambda array: array.dtype, state) == jax.tree.map(
        lambda array: array.dtype, make_state(value)
    )
    assert loop_state == {"next_update": value, "seeds": [1, 2]}


def save(checkpointer: Checkpointer, step: int) -> None:
    checkpointer.save(step, make_state(step), {"next_update": step, "seeds": [1, 2]})


def test_checkpointer_keeps_and_restores_latest(tmp_path):
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        assert checkpointer.restore(make_state(0)) is None
        for step in (1, 2, 3):
            save(checkpointer, step)
        save(checkpointer, 3)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"2", "3"}
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        assert_restored(checkpointer.restore(make_state(0)), 3)


def test_save_is_unaffected_by_buffer_donation(tmp_path):
    """The next update donates the buffers of the state while the checkpoint is written."""
    overwrite = jax.jit(
        lambda state: jax.tree.map(lambda array: array * 0 - 1, state), donate_argnums=0
    )
    params = {"w": jnp.full((2048, 2048), 7.0)}
    state = TrainState(jnp.asarray(7, jnp.int32), params, OPTIMIZER.init(params))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(7, state, {})
        for _ in range(3):
            state = overwrite(state)
        jax.block_until_ready(state)
    with Checkpointer(tmp_path) as checkpointer:
        loaded_state, _ = checkpointer.restore(state) or (None, None)
    assert int(loaded_state.step) == 7
    np.testing.assert_array_equal(loaded_state.params["w"], np.full((2048, 2048), 7.0))


def damage(checkpoint: Path) -> None:
    for file in checkpoint.rglob("*"):
        if file.is_file() and file.stat().st_size > 8:
            file.write_bytes(file.read_bytes()[:8])


def test_restore_skips_damaged_checkpoint(tmp_path, caplog):
    with Checkpointer(tmp_path) as checkpointer:
        save(checkpointer, 1)
        save(checkpointer, 2)
    damage(tmp_path / "2")
    with Checkpointer(tmp_path) as checkpointer:
        assert_restored(checkpointer.restore(make_state(0)), 1)
        assert "checkpoint 2 cannot be read" in caplog.text
        # The run continues from 1 and replaces the damaged one.
        save(checkpointer, 2)
    with Checkpointer(tmp_path) as checkpointer:
        assert_restored(checkpointer.restore(make_state(0)), 2)
        damage(tmp_path / "2")
        damage(tmp_path / "1")
        with pytest.raises(ValueError, match=r"none of the checkpoints \[2, 1\]"):
            checkpointer.restore(make_state(0))


def test_restore_rejects_other_model(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        save(checkpointer, 1)
        other_state = TrainState(jnp.zeros((), jnp.int32), {"w": jnp.zeros((9, 9))}, ())
        with pytest.raises(ValueError, match="of another model"):
            checkpointer.restore(other_state)


def test_too_little_device_memory_is_not_damage(tmp_path, monkeypatch):
    def allocate_too_much(*args, **kwargs):
        jnp.zeros(1 << 50)

    with Checkpointer(tmp_path) as checkpointer:
        save(checkpointer, 1)
        monkeypatch.setattr(ocp.CheckpointManager, "restore", allocate_too_much)
        with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
            checkpointer.restore(make_state(0))


def test_failed_read_is_not_damage(tmp_path, monkeypatch):
    def open_too_many_files(*args, **kwargs):
        raise OSError(errno.EMFILE, "too many open files")

    with Checkpointer(tmp_path) as checkpointer:
        save(checkpointer, 1)
        with monkeypatch.context() as patch:
            patch.setattr(ocp.CheckpointManager, "restore", open_too_many_files)
            with pytest.raises(OSError, match="too many open files"):
                checkpointer.restore(make_state(0))
        assert_restored(checkpointer.restore(make_state(0)), 1)


_KILL_DURING_SAVE = """
import os, signal, sys
from tests.test_checkpoint import Checkpointer, make_state, save

class KillOnItems(dict):
    def items(self):
        os.kill(os.getpid(), signal.SIGKILL)

checkpointer = Checkpointer(sys.argv[1])
save(checkpointer, 1)
checkpointer.save(2, make_state(2), {"next_update": KillOnItems(a=1)})
checkpointer.close()
"""


def test_kill_during_save_keeps_previous_checkpoint(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", _KILL_DURING_SAVE, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        timeout=240,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL
    assert [path for path in tmp_path.iterdir() if path.name != "1"], (
        "the process ended before it wrote"
    )
    with Checkpointer(tmp_path) as checkpointer:
        assert_restored(checkpointer.restore(make_state(0)), 1)
        save(checkpointer, 2)
        assert_restored(checkpointer.restore(make_state(0)), 2)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}
