"""Tests of the XLA flag that gives correct sums on CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest

from webagent_jax import xla_flags

DISABLE_FLAG = xla_flags.DISABLE_YNN_REDUCE

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
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


@pytest.mark.parametrize(
    "imports", ["import webagent_jax.agent, jax", "import jax, webagent_jax.seeds"]
)
def test_import_gives_correct_sums_on_cpu(imports: str) -> None:
    stdout, stderr = run(imports + SQUARES)
    assert float(stdout) == 2.0**30
    assert "JAX started before" not in stderr


def test_import_warns_once_if_jax_is_initialized() -> None:
    _, stderr = run("import jax\njax.devices()\nimport webagent_jax.seeds, webagent_jax.agent")
    assert stderr.count("JAX started before the import of webagent_jax") == 1
    assert f"export XLA_FLAGS={DISABLE_FLAG}" in stderr


@pytest.mark.parametrize(
    ("flags", "platforms", "jaxlib", "expected"),
    [
        ("", "", "0.10.2", DISABLE_FLAG),
        ("--xla_a=1", "cuda,cpu", "0.11.2", f"--xla_a=1 {DISABLE_FLAG}"),
        (f"{xla_flags.YNN_FUSION}=+reduce", "cpu", "0.10.2", f"{xla_flags.YNN_FUSION}=+reduce"),
        ("flags.txt", "cpu", "0.10.2", "flags.txt"),  # XLA reads its flags from this file
        ("--xla_a=1", "tpu", "0.10.2", "--xla_a=1"),
        ("", "cpu", "0.10.1", ""),
        ("", "cpu", "99.0.0", ""),
    ],
)
def test_disable_ynn_reduce_sets_flag_only_if_needed(
    flags: str, platforms: str, jaxlib: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setattr(metadata, "version", {"jaxlib": jaxlib}.__getitem__)
    xla_flags.disable_ynn_reduce()
    assert os.environ["XLA_FLAGS"] == expected


def test_disable_ynn_reduce_ignores_missing_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(metadata, "version", version)
    xla_flags.disable_ynn_reduce()
    assert not os.environ["XLA_FLAGS"]
