"""Tests of the import contracts at run time, lazy imports and libraries included."""

from __future__ import annotations

import subprocess
import sys

import pytest

BROWSER_SIDE = ("agent", "arena", "browser", "suites", "rollout.episode")
DEVICE_SIDE = ("policy", "learn", "inference")
LEARNER = ("train.learner", "train.export")
RUNS = ("quickstart", "collect_demos", "report.server")
BROWSER_MODULES = {"webagent_jax.arena", "webagent_jax.browser", "webagent_jax.suites"}


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (BROWSER_SIDE, {"jax", "flax", "optax", "orbax"}),
        (DEVICE_SIDE, {"playwright", "tensorflow_datasets", "transformers"}),
        (LEARNER, {"playwright", "starlette", *BROWSER_MODULES}),
        # A library imports torch where it is installed: the writer of TensorBoard files.
        (RUNS, {"torch", "tensorboardX"}),
    ],
)
def test_import_does_not_load_forbidden_modules(
    modules: tuple[str, ...], forbidden: set[str]
) -> None:
    script = "".join(f"import webagent_jax.{module}\n" for module in modules)
    script += f"import sys\nprint(*sorted({forbidden!r} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
