"""Settings of all tests: CPU unless JAX_PLATFORMS is set, no implicit rank promotion."""

from __future__ import annotations

import os

import pytest

# JAX reads these variables at its first import; child processes of tests inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` unless JAX_PLATFORMS names an accelerator."""
    if os.environ["JAX_PLATFORMS"] == "cpu":
        skip = pytest.mark.skip(reason="needs an accelerator: JAX_PLATFORMS=cuda make test")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)
