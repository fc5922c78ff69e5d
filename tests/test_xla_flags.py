"""Importing the package makes JAX compute right values on CPU, and leaves what the user set."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest

from webagent_jax import xla_flags

OFF = xla_flags.DISABLE_YNN_REDUCE

# The program of jax issue 39103: its last value is 2**30.
SQUARES = """
import jax.numpy as jnp
row = jnp.arange(32769, dtype=jnp.float32)
rows = jnp.stack((row, 0 * row, 0 * row), axis=1)
squares = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))
print(float(squares(rows)[-1]))
"""


def run(script: str) -> tuple[str, str]:
    """Return stdout and stderr of a Python process with no XLA_FLAGS in its environment."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "imports", ["import webagent_jax.agent, jax", "import jax, webagent_jax.seeds"]
)
def test_import_gives_right_values_on_cpu(imports: str) -> None:
    stdout, stderr = run(imports + SQUARES)
    assert float(stdout) == 2.0**30
    assert "JAX started before" not in stderr


def test_import_warns_once_where_jax_runs_already() -> None:
    _, stderr = run("import jax\njax.devices()\nimport webagent_jax.seeds, webagent_jax.agent")
    assert stderr.count("JAX started before the import of webagent_jax") == 1
    assert f"export XLA_FLAGS={OFF}" in stderr


@pytest.mark.parametrize(
    ("before", "platforms", "jaxlib", "after"),
    [
        ("", "", "0.10.2", OFF),
        ("--xla_a=1", "cuda,cpu", "0.11.2", f"--xla_a=1 {OFF}"),
        (f"{xla_flags.YNN_FUSION}=+reduce", "cpu", "0.10.2", f"{xla_flags.YNN_FUSION}=+reduce"),
        ("flags.txt", "cpu", "0.10.2", "flags.txt"),  # XLA reads its flags from this file
        ("--xla_a=1", "tpu", "0.10.2", "--xla_a=1"),
        ("", "cpu", "0.10.1", ""),
        ("", "cpu", "99.0.0", ""),
    ],
)
def test_flag_is_set_only_where_it_is_needed(
    before: str, platforms: str, jaxlib: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", before)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setattr(metadata, "version", {"jaxlib": jaxlib}.__getitem__)
    xla_flags.disable_ynn_reduce()
    assert os.environ["XLA_FLAGS"] == after


def test_flag_is_not_set_without_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(metadata, "version", version)
    xla_flags.disable_ynn_reduce()
    assert not os.environ["XLA_FLAGS"]
