"""What holds for every test: no accelerator unless asked for, no silent broadcasting of ranks."""

from __future__ import annotations

import os

import pytest

# Read by jax at its first import, and inherited by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` run only where JAX_PLATFORMS names an accelerator."""
    if os.environ["JAX_PLATFORMS"] == "cpu":
        skip = pytest.mark.skip(reason="needs an accelerator: JAX_PLATFORMS=cuda make test")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)
