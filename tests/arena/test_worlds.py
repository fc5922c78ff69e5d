"""Tests of database images and copy-on-write worlds."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arena.conftest import SiteClient, send_request
from webagent_jax.arena import database
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import SITES
from webagent_jax.arena.worlds import WorldStore
from webagent_jax.types import InfraError

_PRINT_DIGESTS = """
import hashlib
from webagent_jax.arena import database
from webagent_jax.arena.registry import SITES
for site in SITES:
    print(site.name, hashlib.sha256(database.build_image(site.database)).hexdigest())
"""


def test_database_builds_do_not_depend_on_hash_seed() -> None:
    """The order of sets of strings depends on it, and with it that of rows."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(outputs[0].splitlines()) == len(SITES) and outputs[0] == outputs[1]


def test_image_cache_rebuilds_after_code_change(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")
        fill_calls.append(1)

    fill_calls: list[int] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    definition = database.Database("small", "CREATE TABLE t (x)", fill)
    image = database.load_image(definition)
    assert database.load_image(definition) == image and len(fill_calls) == 1
    monkeypatch.setattr(database, "_content_hash", lambda _: "changed")
    assert database.load_image(definition) == image and len(fill_calls) == 2
    assert len(list((tmp_path / "webagent_jax" / "arena").iterdir())) == 1


def test_image_cache_distinguishes_schemas(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one_table = database.Database("small", "CREATE TABLE t (x)", lambda _: None)
    two_tables = database.Database(
        "small", "CREATE TABLE t (x); CREATE TABLE more (y)", lambda _: None
    )
    for definition in (one_table, two_tables, one_table):
        assert database.load_image(definition) == database.build_image(definition)


@pytest.fixture
def worlds() -> WorldStore:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")

    image = database.build_image(database.Database("a", "CREATE TABLE t (x)", fill))
    return WorldStore({"a": image, "b": image}, {"shop": 1})


def read_values(connection: sqlite3.Connection) -> list[int]:
    return [x for (x,) in connection.execute("SELECT x FROM t")]


def test_worlds_copy_database_on_first_write(worlds: WorldStore) -> None:
    world_a, world_b = worlds.new(), worlds.new()
    assert world_a.reader("a") is world_b.reader("a")
    world_a.writer("a").execute("UPDATE t SET x = 2")
    assert read_values(world_a.reader("a")) == [2] and read_values(world_b.reader("a")) == [1]
    assert world_a.reader("b") is world_b.reader("b")


def test_seed_database_is_read_only(worlds: WorldStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        worlds.new().reader("a").execute("UPDATE t SET x = 2")


def test_drop_removes_world_without_name_reuse(worlds: WorldStore) -> None:
    world = worlds.new()
    worlds.drop(world.name)
    worlds.drop(world.name)
    assert worlds.get(world.name) is None and len(worlds) == 0
    assert worlds.new().name != world.name


def test_world_slots_are_reused_with_new_names(worlds: WorldStore) -> None:
    world_a, world_b = worlds.new(), worlds.new()
    assert (world_a.name, world_b.name) == ("w1", "w2")
    worlds.drop(world_a.name)
    successor = worlds.new()
    assert (successor.name, worlds.new().name) == ("2.w1", "w3")
    worlds.drop(world_b.name)
    worlds.drop(successor.name)
    assert worlds.new().name == "3.w1"  # the slot released last
    assert worlds.new().name == "2.w2"


def test_http_writes_stay_in_world(server: ArenaServerHandle) -> None:
    names = [server.new() for _ in range(32)]
    clients = [SiteClient(server, name) for name in names]
    for number, client in enumerate(clients):
        client.post(
            "/account/details", first=f"Nora{number}", last="W", email="n@x.example", phone="1"
        )
    for number, (name, client) in enumerate(zip(names, clients, strict=True)):
        assert f"Nora{number} W, n@x.example" in client.get("/account").text
        rows = server.rows(name, "shop", "SELECT first FROM customer WHERE id = 1")
        assert rows == [[f"Nora{number}"]]
    for name in names:
        server.drop(name)
    new_world = server.new()
    assert server.rows(new_world, "shop", "SELECT first FROM customer WHERE id = 1") == [["Nora"]]
    server.drop(new_world)


@pytest.mark.parametrize(
    "name", ["shop.w999999.localhost", "nosuch.w1.localhost", "127.0.0.1", "shop.w1.evil.example"]
)
def test_unknown_hosts_return_404(server: ArenaServerHandle, world: str, name: str) -> None:
    page = send_request(server.port, f"{name}:{server.port}", "/")
    assert (page.status, page.text) == (404, "There is no such world.")


def test_failed_command_raises_and_server_continues(server: ArenaServerHandle) -> None:
    with pytest.raises(InfraError, match="KeyError"):
        server.rows("w999999", "shop", "SELECT 1")
    server.drop(server.new())


def test_late_responses_are_dropped_with_their_worlds(server: ArenaServerHandle) -> None:
    num_worlds = server._call("count")
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            with pytest.raises(InfraError, match="does not respond: timed out"):
                server._call("new", timeout=0.2)
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    world = server.new()
    assert server.rows(world, "shop", "SELECT first FROM customer WHERE id = 1") == [["Nora"]]
    assert server._call("count") == num_worlds + 1
    server.drop(world)


def test_server_runs_this_package_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "webagent_jax").mkdir()
    (tmp_path / "webagent_jax" / "__init__.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    with ArenaServerHandle() as server:
        assert server.new()


def test_closed_server_raises_infra_error() -> None:
    server = ArenaServerHandle()
    server.close()
    server.close()
    with pytest.raises(InfraError, match="does not respond"):
        server.new()
