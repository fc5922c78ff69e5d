"""Settings of all tests: CPU unless JAX_PLATFORMS is set, shared compiled programs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# These tests compare results bit by bit, so they run programs with all optimizations.
_OPTIMIZED_TESTS = Path(__file__).parent / "inference"

# JAX reads these variables at its first import; child processes of tests inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
# Tests use no model of the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Share compiled programs between the test workers and child processes of this run."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    directory = tempfile.mkdtemp(prefix="webagent_jax-test-")
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    # Workers inherit the variables, because the controller runs this before it starts them.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = directory
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


@pytest.fixture(autouse=True, scope="module")
def compile_options(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile with few optimizations, which takes half the time, outside of tests/inference."""
    if "jax" not in sys.modules or _OPTIMIZED_TESTS in request.path.parents:
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    # A later module must not reuse these programs.
    jax.clear_caches()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests, and skip tests marked `gpu` without an accelerator."""
    # Long tests have a longer timeout. Last, one worker would run them while the others are idle.
    items.sort(key=lambda item: -_timeout(item))
    if os.environ["JAX_PLATFORMS"] == "cpu":
        skip = pytest.mark.skip(reason="needs an accelerator: JAX_PLATFORMS=cuda make test")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


def _timeout(item: pytest.Item) -> float:
    """Return the timeout that the test sets itself, in seconds; 0 for none."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0.0
