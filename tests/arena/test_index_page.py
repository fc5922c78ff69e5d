"""Tests of the index page for manual use."""

from __future__ import annotations

import pytest
from starlette.routing import Router

from tests.arena.conftest import call_asgi
from webagent_jax.arena import index_page
from webagent_jax.arena.worlds import WorldStore

HOST = "localhost:8020"
ORIGIN = f"http://{HOST}"


@pytest.fixture
def worlds() -> WorldStore:
    return WorldStore({}, {"shop": 1})


@pytest.fixture
def router(worlds: WorldStore) -> Router:
    return index_page.make_router(worlds, {"train": (), "test": ()}, 8020)


def test_visit_creates_world(worlds: WorldStore, router: Router) -> None:
    page = call_asgi(router, HOST, "/visit?site=reddit", method="POST", origin=ORIGIN)
    assert page.location == "http://forum.w1.localhost:8020/" and worlds.get("w1")
    assert "1 live now" in call_asgi(router, HOST, "/").text


@pytest.mark.parametrize("origin", ["", "null", "http://other.example", "http://localhost:1"])
def test_other_websites_cannot_create_worlds(
    worlds: WorldStore, router: Router, origin: str
) -> None:
    assert call_asgi(router, HOST, "/visit", method="POST", origin=origin).status == 403
    assert len(worlds) == 0


def test_other_hosts_are_rejected(router: Router) -> None:
    assert call_asgi(router, "rebound.example", "/").status == 400


def test_oldest_world_is_deleted(
    worlds: WorldStore, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_page, "_MAX_WORLDS", 2)
    for _ in range(3):
        call_asgi(router, HOST, "/visit", method="POST", origin=ORIGIN)
    assert len(worlds) == 2 and worlds.get("w1") is None and worlds.get("w3")
