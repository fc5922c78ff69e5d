"""Images are the same every time; worlds share them until they write, and never meet."""

from __future__ import annotations

import sqlite3

import pytest

from tests.arena.conftest import Visitor, ask
from webagent_jax.arena import database
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import SITES
from webagent_jax.arena.worlds import WorldStore
from webagent_jax.types import InfraError

DATABASES = {site.database.name: site.database for site in SITES}


@pytest.mark.parametrize("name", DATABASES)
def test_two_builds_are_the_same_bytes(name: str) -> None:
    assert database.build_image(DATABASES[name]) == database.build_image(DATABASES[name])


def test_the_image_is_kept_and_built_anew_when_the_code_changes(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")
        filled.append(1)

    filled: list[int] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = database.Database("small", "CREATE TABLE t (x)", fill)
    first = database.load_image(small)
    assert database.load_image(small) == first and len(filled) == 1
    monkeypatch.setattr(database, "_version", lambda _: "changed")
    assert database.load_image(small) == first and len(filled) == 2
    assert len(list((tmp_path / "webagent_jax" / "arena").iterdir())) == 1


def test_images_of_one_name_and_other_tables_are_not_mistaken_for_one_another(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    alone = database.Database("small", "CREATE TABLE t (x)", lambda _: None)
    wider = database.Database("small", "CREATE TABLE t (x); CREATE TABLE more (y)", lambda _: None)
    for wanted in (alone, wider, alone):
        assert database.load_image(wanted) == database.build_image(wanted)


@pytest.fixture
def worlds() -> WorldStore:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")

    image = database.build_image(database.Database("a", "CREATE TABLE t (x)", fill))
    return WorldStore({"a": image, "b": image}, {"shop": 1})


def values(connection: sqlite3.Connection) -> list[int]:
    return [x for (x,) in connection.execute("SELECT x FROM t")]


def test_reading_shares_and_the_first_write_copies_one_database(worlds: WorldStore) -> None:
    one, two = worlds.new(), worlds.new()
    assert one.reader("a") is two.reader("a")
    one.writer("a").execute("UPDATE t SET x = 2")
    assert values(one.reader("a")) == [2] and values(two.reader("a")) == [1]
    assert one.reader("b") is two.reader("b")


def test_the_seed_cannot_be_written(worlds: WorldStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        worlds.new().reader("a").execute("UPDATE t SET x = 2")


def test_a_copy_has_the_state_and_goes_its_own_way(worlds: WorldStore) -> None:
    one = worlds.new()
    one.writer("a").execute("UPDATE t SET x = 2")
    one.sessions["shop"].flashes.append("hello")
    two = worlds.copy(one.name)
    two.writer("a").execute("UPDATE t SET x = 3")
    two.sessions["shop"].flashes.clear()
    assert (values(one.reader("a")), values(two.reader("a"))) == ([2], [3])
    assert one.sessions["shop"].flashes == ["hello"]


def test_dropped_worlds_are_gone_and_names_are_not_used_again(worlds: WorldStore) -> None:
    one = worlds.new()
    worlds.drop(one.name)
    worlds.drop(one.name)
    assert worlds.get(one.name) is None and len(worlds) == 0
    assert worlds.new().name != one.name


def test_a_place_is_one_live_worlds_and_names_count_on(worlds: WorldStore) -> None:
    one, two = worlds.new(), worlds.new()
    assert (one.name, two.name) == ("w1", "w2")
    worlds.drop(one.name)
    again = worlds.new()
    assert (again.name, worlds.new().name) == ("2.w1", "w3")
    worlds.drop(two.name)
    worlds.drop(again.name)
    assert worlds.copy("w3").name == "3.w1"  # the place left last
    assert worlds.new().name == "2.w2"


def test_conflicting_writes_over_http_stay_in_their_worlds(host: ArenaServerHandle) -> None:
    names = [host.new() for _ in range(32)]
    visitors = [Visitor(host, name) for name in names]
    for number, visitor in enumerate(visitors):
        visitor.post(
            "/account/details", first=f"Nora{number}", last="W", email="n@x.example", phone="1"
        )
    for number, (name, visitor) in enumerate(zip(names, visitors, strict=True)):
        assert f"Nora{number} W, n@x.example" in visitor.get("/account").text
        first = host.rows(name, "shop", "SELECT first FROM customer WHERE id = 1")
        assert first == [[f"Nora{number}"]]
    for name in names:
        host.drop(name)
    fresh = host.new()
    assert host.rows(fresh, "shop", "SELECT first FROM customer WHERE id = 1") == [["Nora"]]
    host.drop(fresh)


@pytest.mark.parametrize(
    "name", ["shop.w999999.localhost", "nosuch.w1.localhost", "127.0.0.1", "shop.w1.evil.example"]
)
def test_what_is_no_live_world_is_not_there(host: ArenaServerHandle, world: str, name: str) -> None:
    page = ask(host.port, f"{name}:{host.port}", "/")
    assert (page.status, page.text) == (404, "There is no such world.")


def test_a_refused_command_names_itself_and_the_server_lives_on(host: ArenaServerHandle) -> None:
    with pytest.raises(InfraError, match="KeyError"):
        host.copy("w999999")
    host.drop(host.new())


def test_a_closed_host_says_so() -> None:
    host = ArenaServerHandle()
    host.close()
    host.close()
    with pytest.raises(InfraError, match="does not respond"):
        host.new()
