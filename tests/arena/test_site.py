"""Tests of the arena's web framework: database access, rollback, forms and pagination."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, Response

from tests.arena.conftest import call_asgi
from webagent_jax.arena.database import Database
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.registry import SITES
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


@views.get("/row/{number:int}")
def show_row(request: RequestContext, number: int) -> Response:
    return PlainTextResponse(str(request.row("SELECT x FROM t WHERE x = ?", number)["x"]))


@views.get("/writes")
def write_on_get(request: RequestContext) -> Response:
    request.execute("INSERT INTO t VALUES (0)")
    return PlainTextResponse("never")


@views.post("/add")
def add(request: RequestContext) -> Response:
    request.execute("INSERT INTO t VALUES (?)", request.form["x"])
    if request.form["x"] == "bad":
        raise NotFound
    return request.redirect("/count", "Added.")


@views.get("/mine", signed_in=True)
def show_account(request: RequestContext) -> Response:
    return PlainTextResponse(str(request.session.account_id))


@views.post("/mine", signed_in=True)
def change_account(request: RequestContext) -> Response:
    return PlainTextResponse("changed")


@views.get("/filtered")
def filter_fields(request: RequestContext) -> Response:
    return request.redirect_without_blanks() or PlainTextResponse(str(request.query))


@views.get("/list")
def list_rows(request: RequestContext) -> Response:
    page = paginate(request, "x", "FROM t ORDER BY x", size=3)
    rows = "".join(str(row["x"]) for row in page.rows)
    return PlainTextResponse(f"{rows} {page.first}-{page.last} of {page.total} {page.href}")


def fill(connection: sqlite3.Connection) -> None:
    connection.executemany("INSERT INTO t VALUES (?)", [(x,) for x in range(1, 8)])


class AsgiClient:
    """Client that calls the ASGI app without a server."""

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
            account_id=7,
        )
        self.arena = ArenaApp([site])
        self.world = self.arena.worlds.new()

    def __call__(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        host = f"small.{self.world.name}.localhost:1"
        page = call_asgi(self.arena, host, path, method=method, body=body)
        return page.status, page.text


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsgiClient:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return AsgiClient(tmp_path)


def test_get_request_cannot_write(client: AsgiClient, caplog: pytest.LogCaptureFixture) -> None:
    assert client("GET", "/writes")[0] == 500 and "readonly" in caplog.text
    assert client("POST", "/add", b"x=1")[0] == 303
    caplog.clear()
    assert client("GET", "/writes")[0] == 500 and "readonly" in caplog.text


def test_failed_view_shows_page_in_layout(client: AsgiClient) -> None:
    status, text = client("POST", "/add", b"y=1")
    assert status == 500 and "Something went wrong" in text and 'href="/style.css"' in text


def test_body_with_invalid_utf8_is_read(client: AsgiClient) -> None:
    assert client("POST", "/add", b"x=\xff\xfe")[0] == 303


def test_failed_post_rolls_back(client: AsgiClient) -> None:
    assert client("POST", "/add", b"x=good")[0] == 303
    assert client("POST", "/add", b"x=bad")[0] == 404
    assert client("GET", "/count") == (200, "8")


def test_views_with_signed_in_redirect_without_account(client: AsgiClient) -> None:
    assert client("GET", "/mine") == (200, "7")
    client.world.sessions["small"].account_id = None
    assert client("GET", "/mine") == (303, "")
    assert client("POST", "/mine") == (303, "")
    everywhere = ViewRegistry(signed_in=True)
    everywhere.get("/")(show_account)
    assert everywhere.entries[0][2] is not show_account


def test_redirect_keeps_fields_named_path_and_flash(client: AsgiClient) -> None:
    assert client("GET", "/filtered?path=a&flash=b&q=")[0] == 303
    assert not client.world.sessions["small"].flashes
    assert client("GET", "/filtered?path=a&flash=b") == (200, "path=a&flash=b")


def test_integer_too_large_for_the_database_returns_404(client: AsgiClient) -> None:
    assert client("GET", "/row/7") == (200, "7")
    for number in (8, 2**63, 10**40):
        assert client("GET", f"/row/{number}")[0] == 404


def test_flash_message_appears_once(client: AsgiClient) -> None:
    client("POST", "/add", b"x=1")
    assert "Added." in client("GET", "/nothing")[1]
    assert "Added." not in client("GET", "/nothing")[1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "123 1-3 of 7 /list?page="),
        ("?page=2&a=b&c=", "456 4-6 of 7 /list?a=b&page="),
        ("?page=3", "7 7-7 of 7 /list?page="),
        ("?page=99", "7 7-7 of 7 /list?page="),
        ("?page=-1", "123 1-3 of 7 /list?page="),
        ("?page=9999999999", "123 1-3 of 7 /list?page="),
    ],
)
def test_paginate_returns_rows_range_and_link(
    client: AsgiClient, query: str, expected: str
) -> None:
    assert client("GET", f"/list{query}") == (200, expected)


def test_form_parses_fields_and_reports_errors() -> None:
    form = Form({"n": " 7 ", "price": "$1,234.5", "mail": "a@b.example", "on": "1", "kind": "x"})
    assert (form.integer("n", 1, 9), form.cents("price"), form.email("mail")) == (
        7,
        123450,
        "a@b.example",
    )
    assert form.is_checked("on") and not form.is_checked("off") and form.choice("kind", "xy") == "x"
    assert not form.errors
    for name in ("n", "price", "mail", "kind"):
        invalid_form = Form({name: "?"})
        invalid_form.integer("n", 1, 9)
        invalid_form.cents("price")
        invalid_form.email("mail")
        invalid_form.choice("kind", "xy")
        assert set(invalid_form.errors) == {"n", "price", "mail", "kind"}
        assert invalid_form.errors[name] != "This is a required field."


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
def test_long_words_wrap(site: Site) -> None:
    style = (site.folder / "style.css").read_text()
    assert re.search(r"^body \{[^}]* overflow-wrap: anywhere;", style, re.MULTILINE)


def test_money_day_and_plural_format_values() -> None:
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
