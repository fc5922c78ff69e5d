"""Checkpoints: round trip, damage, and death in the middle of a save."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from webagent_jax.checkpoint import Checkpointer
from webagent_jax.learn import TrainState

OPTIMIZER = optax.adam(0.1)


def state_of(value: float) -> TrainState:
    params = {"w": jnp.full((3, 2), value), "layers": {"b": jnp.arange(4.0) + value}}
    return TrainState(jnp.asarray(int(value), jnp.int32), params, OPTIMIZER.init(params))


def assert_holds(restored: tuple | None, value: float) -> None:
    assert restored is not None
    state, position = restored
    jax.tree.map(np.testing.assert_array_equal, state, state_of(value))
    assert jax.tree.map(lambda x: x.dtype, state) == jax.tree.map(
        lambda x: x.dtype, state_of(value)
    )
    assert position == {"next_update": value, "seeds": [1, 2]}


def save(checkpointer: Checkpointer, step: int) -> None:
    checkpointer.save(step, state_of(step), {"next_update": step, "seeds": [1, 2]})


def test_round_trip_keeps_the_latest(tmp_path):
    with Checkpointer(tmp_path / "checkpoints", max_to_keep=2) as checkpointer:
        assert checkpointer.restore(state_of(0)) is None
        for step in (1, 2, 3):
            save(checkpointer, step)
        save(checkpointer, 3)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"2", "3"}
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        assert_holds(checkpointer.restore(state_of(0)), 3)


def test_what_is_saved_does_not_change_with_the_state(tmp_path):
    """The next update consumes the state while it is being written."""
    change = jax.jit(lambda state: jax.tree.map(lambda x: x * 0 - 1, state), donate_argnums=0)
    params = {"w": jnp.full((2048, 2048), 7.0)}
    state = TrainState(jnp.asarray(7, jnp.int32), params, OPTIMIZER.init(params))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(7, state, {})
        for _ in range(3):
            state = change(state)
        jax.block_until_ready(state)
    with Checkpointer(tmp_path) as checkpointer:
        restored, _ = checkpointer.restore(state) or (None, None)
    assert int(restored.step) == 7
    np.testing.assert_array_equal(restored.params["w"], np.full((2048, 2048), 7.0))


def damage(checkpoint: Path) -> None:
    for file in checkpoint.rglob("*"):
        if file.is_file() and file.stat().st_size > 8:
            file.write_bytes(file.read_bytes()[:8])


def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path, caplog):
    with Checkpointer(tmp_path) as checkpointer:
        save(checkpointer, 1)
        save(checkpointer, 2)
    damage(tmp_path / "2")
    with Checkpointer(tmp_path) as checkpointer:
        assert_holds(checkpointer.restore(state_of(0)), 1)
        assert "checkpoint 2 cannot be read" in caplog.text
        damage(tmp_path / "1")
        with pytest.raises(ValueError, match=r"none of the checkpoints \[2, 1\]"):
            checkpointer.restore(state_of(0))


def test_another_model_is_refused(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        save(checkpointer, 1)
        other = TrainState(jnp.zeros((), jnp.int32), {"w": jnp.zeros((9, 9))}, ())
        with pytest.raises(ValueError, match="of another model"):
            checkpointer.restore(other)


_DIES_WHILE_SAVING = """
import os, signal, sys
from tests.test_checkpoint import Checkpointer, save, state_of

class Bomb(dict):
    def items(self):
        os.kill(os.getpid(), signal.SIGKILL)

checkpointer = Checkpointer(sys.argv[1])
save(checkpointer, 1)
checkpointer.save(2, state_of(2), {"next_update": Bomb(a=1)})
checkpointer.close()
"""


def test_death_in_the_middle_of_a_save_leaves_the_one_before(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", _DIES_WHILE_SAVING, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        timeout=240,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert [path for path in tmp_path.iterdir() if path.name != "1"], "it died before it wrote"
    with Checkpointer(tmp_path) as checkpointer:
        assert_holds(checkpointer.restore(state_of(0)), 1)
        save(checkpointer, 2)
        assert_holds(checkpointer.restore(state_of(0)), 2)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}
