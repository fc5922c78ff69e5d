"""What views may count on: which database they get, what is undone, what forms and lists read."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, Response

from webagent_jax.arena.database import Database
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.server import ArenaApp
from webagent_jax.arena.site import (
    NotFound,
    RequestContext,
    Site,
    ViewRegistry,
    format_day,
    format_money,
    pluralize,
)

views = ViewRegistry()


@views.get("/count")
def count(request: RequestContext) -> Response:
    return PlainTextResponse(str(request.value("SELECT count(*) FROM t")))


@views.get("/writes")
def get_that_writes(request: RequestContext) -> Response:
    request.execute("INSERT INTO t VALUES (0)")
    return PlainTextResponse("never")


@views.post("/add")
def add(request: RequestContext) -> Response:
    request.execute("INSERT INTO t VALUES (?)", request.form["x"])
    if request.form["x"] == "bad":
        raise NotFound
    return request.redirect("/count", "Added.")


@views.get("/list")
def pages(request: RequestContext) -> Response:
    found = paginate(request, "x", "FROM t ORDER BY x", size=3)
    rows = "".join(str(row["x"]) for row in found.rows)
    return PlainTextResponse(f"{rows} {found.first}-{found.last} of {found.total} {found.href}")


def fill(connection: sqlite3.Connection) -> None:
    connection.executemany("INSERT INTO t VALUES (?)", [(x,) for x in range(1, 8)])


class Asked:
    """A site asked without a server."""

    def __init__(self, folder: Path) -> None:
        (folder / "templates").mkdir()
        (folder / "templates/layout.html.j2").write_text("{% extends 'base.html.j2' %}")
        (folder / "style.css").write_text("")
        database = Database("small", "CREATE TABLE t (x)", fill)
        site = Site(
            name="small",
            task_name="homepage",
            title="Small",
            description="",
            database=database,
            views=[views],
            folder=folder,
        )
        self.arena = ArenaApp([site])
        self.world = self.arena.worlds.new()

    def __call__(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        sent: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict) -> None:
            sent.append(message)

        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"host", f"small.{self.world.name}.localhost:1".encode())],
            "server": ("small", 1),
            "scheme": "http",
        }
        asyncio.run(self.arena(scope, receive, send))
        return sent[0]["status"], sent[1]["body"].decode()


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Asked(tmp_path)


def test_a_get_that_writes_is_an_error_before_and_after_the_first_write(ask: Asked) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        ask("GET", "/writes")
    assert ask("POST", "/add", b"x=1")[0] == 303
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        ask("GET", "/writes")


def test_a_post_that_fails_leaves_nothing(ask: Asked) -> None:
    assert ask("POST", "/add", b"x=good")[0] == 303
    assert ask("POST", "/add", b"x=bad")[0] == 404
    assert ask("GET", "/count") == (200, "8")


def test_a_flash_is_told_once(ask: Asked) -> None:
    ask("POST", "/add", b"x=1")
    assert "Added." in ask("GET", "/nothing")[1]
    assert "Added." not in ask("GET", "/nothing")[1]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "123 1-3 of 7 /list?page="),
        ("?page=2&a=b&c=", "456 4-6 of 7 /list?a=b&page="),
        ("?page=3", "7 7-7 of 7 /list?page="),
        ("?page=99", "7 7-7 of 7 /list?page="),
        ("?page=-1", "123 1-3 of 7 /list?page="),
        ("?page=9999999999", "123 1-3 of 7 /list?page="),
    ],
)
def test_lists_go_on_over_pages(ask: Asked, query: str, told: str) -> None:
    assert ask("GET", f"/list{query}") == (200, told)


def test_forms_read_their_fields_and_tell_what_is_wrong() -> None:
    form = Form({"n": " 7 ", "price": "$1,234.5", "mail": "a@b.example", "on": "1", "kind": "x"})
    assert (form.integer("n", 1, 9), form.cents("price"), form.email("mail")) == (
        7,
        123450,
        "a@b.example",
    )
    assert form.is_checked("on") and not form.is_checked("off") and form.choice("kind", "xy") == "x"
    assert not form.errors
    for name in ("n", "price", "mail", "kind"):
        bad = Form({name: "?"})
        bad.integer("n", 1, 9), bad.cents("price"), bad.email("mail"), bad.choice("kind", "xy")
        assert set(bad.errors) == {"n", "price", "mail", "kind"}
        assert bad.errors[name] != "This is a required field."


def test_numbers_and_days_as_pages_write_them() -> None:
    assert [format_money(5), format_money(123450), format_money(-5)] == [
        "$0.05",
        "$1,234.50",
        "-$0.05",
    ]
    assert format_day("2023-06-05 10:00:00") == "Jun 5, 2023"
    assert [pluralize(1, "city"), pluralize(0, "city", "cities"), pluralize(1234, "post")] == [
        "1 city",
        "0 cities",
        "1,234 posts",
    ]
