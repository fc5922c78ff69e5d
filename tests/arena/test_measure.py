"""Tests of the arena benchmark."""

from __future__ import annotations

import pytest

from tools.benchmarks import arena
from webagent_jax.arena.registry import SITES


def test_benchmark_reports_all_sites_and_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"_PAGES": 3, "_ROUNDS": 1, "_WORLDS": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(arena, name, value)
    *pages, worlds = arena.run(1)
    assert [page["name"] for page in pages] == [f"page, ms: {site.name}" for site in SITES]
    for page in pages:
        assert page["pages"] == 3
        assert page["p50"] > 0
    assert set(worlds["first write"]) == {site.database.name for site in SITES}
    assert {"begin", "drop"} <= worlds.keys()
