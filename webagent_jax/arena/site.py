"""What a site of the arena is, and what its views are given: one visit of one page in one world.

A view is a plain function from a visit to a response. Those of GET read, those of POST may write:
the method of the request decides which database a view gets, and a GET that writes is an error.
"""

from __future__ import annotations

import datetime
import functools
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from webagent_jax.arena import common
from webagent_jax.arena.database import Database
from webagent_jax.arena.worlds import Session, World

View = Callable[..., Response]
"""Called with the visit, and with what the braces of its path stand for as keywords."""

_SHARED = Path(__file__).parent / "templates"
_FRESH = {"Cache-Control": "no-store"}  # going back shows a page as it is, not as it was
_KEPT = {"Cache-Control": "public, max-age=86400"}


class Missing(Exception):
    """There is no such page, product, post: a 404 in the site's own layout."""


@dataclass(frozen=True)
class Site:
    """One web site."""

    name: str  # first part of its host: "shop"
    task_name: str  # what WebArena's task files call it: "shopping"
    title: str  # "Marigold"
    about: str  # one line for the front page
    database: Database
    views: Sequence[Views]
    folder: Path  # holds templates/ and style.css
    account: int | None = None  # signed in when a world begins
    everywhere: Callable[[Visit], Mapping[str, Any]] = lambda visit: {}  # for every template
    filters: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        pages = self._environment()
        style = (self.folder / "style.css").read_bytes()

        async def stylesheet(request: Request) -> Response:
            return Response(style, media_type="text/css", headers=_KEPT)

        return [
            Route("/style.css", stylesheet),
            *(
                Route(path, self._endpoint(view, pages), methods=[method])
                for views in self.views
                for method, path, view in views.listed
            ),
            Route("/{path:path}", self._endpoint(_missing, pages), methods=["GET", "POST"]),
        ]

    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([self.folder / "templates", _SHARED]),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.filters.update(money=money, day=day, moment=moment, plural=plural)
        environment.filters.update(self.filters)
        environment.globals.update(site=self, today=common.TODAY)
        return environment

    def _endpoint(self, view: View, pages: jinja2.Environment) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            sent = parse_qsl((await request.body()).decode(), keep_blank_values=True)
            visit = Visit(self, request.scope["world"], request, dict(sent), pages)
            return visit.answer(view)

        return endpoint


def _missing(visit: Visit, path: str) -> Response:
    raise Missing


class Views:
    """The pages of a site, collected by decorators; several modules may add to one."""

    def __init__(self) -> None:
        self.listed: list[tuple[str, str, View]] = []  # method, path, view

    def get(self, path: str) -> Callable[[View], View]:
        return self._adding("GET", path)

    def post(self, path: str) -> Callable[[View], View]:
        return self._adding("POST", path)

    def _adding(self, method: str, path: str) -> Callable[[View], View]:
        def add(view: View) -> View:
            self.listed.append((method, path, view))
            return view

        return add


class Visit:
    """One request: where it goes, what was sent, who is signed in, which database answers it."""

    def __init__(
        self,
        site: Site,
        world: World,
        request: Request,
        form: Mapping[str, str],
        pages: jinja2.Environment,
    ) -> None:
        self.site = site
        self.world = world
        self.path = request.url.path
        self.query = request.query_params
        self.form = form  # a field sent twice has its last value; see `sent` for all
        self._request = request
        self._pages = pages
        self._writes = request.method == "POST"

    @functools.cached_property
    def db(self) -> sqlite3.Connection:
        if self._writes:
            return self.world.writer(self.site.database.name)
        return self.world.reader(self.site.database.name)

    @property
    def session(self) -> Session:
        return self.world.sessions[self.site.name]

    @property
    def today(self) -> str:
        return common.TODAY.isoformat()

    @property
    def now(self) -> str:
        return common.NOW.isoformat(" ")

    @property
    def here(self) -> str:
        """Path and query: where to come back to."""
        query = self._request.url.query
        return f"{self.path}?{query}" if query else self.path

    def row(self, sql: str, *arguments: Any) -> sqlite3.Row:
        """The one row. Raises Missing when there is none."""
        found: sqlite3.Row | None = self.db.execute(sql, arguments).fetchone()
        if found is None:
            raise Missing
        return found

    def rows(self, sql: str, *arguments: Any) -> list[sqlite3.Row]:
        return self.db.execute(sql, arguments).fetchall()

    def value(self, sql: str, *arguments: Any) -> Any:
        """First column of the first row; None when there is no row."""
        found = self.db.execute(sql, arguments).fetchone()
        return None if found is None else found[0]

    def do(self, sql: str, *arguments: Any) -> int:
        """Writes; returns the id of the row that was inserted last."""
        return self.db.execute(sql, arguments).lastrowid or 0

    def flash(self, message: str) -> None:
        """Tells it on the next page, at its top."""
        self.session.flashes.append(message)

    def page(self, template: str, status: int = 200, **context: Any) -> Response:
        flashes = self.session.flashes[:]
        self.session.flashes.clear()
        text = self._pages.get_template(template).render(
            visit=self, flashes=flashes, **self.site.everywhere(self), **context
        )
        return HTMLResponse(text, status, headers=_FRESH)

    def redirect(self, path: str, flash: str = "", **query: Any) -> Response:
        """Goes on with a GET of a path of this site, and tells `flash` there."""
        if flash:
            self.flash(flash)
        return RedirectResponse(f"{path}?{urlencode(query)}" if query else path, 303)

    def sign_in(self, account: int, home: str) -> Response:
        """Goes on where the sign-in page was come to from, else at `home`."""
        self.session.account = account
        return self.redirect(self.back(home), "Welcome back.")

    def back(self, otherwise: str) -> str:
        """The page of this site that a form was sent from."""
        path = self.form.get("back", "")
        return path if re.match(r"/(?![/\\])", path) else otherwise

    def sign_in_first(self) -> Response:
        """To the sign-in page, which leads back here."""
        back = "/" if self._writes else self.here
        return self.redirect("/sign-in", "Please sign in to go on.", back=back)

    def answer(self, view: View) -> Response:
        """What the view says; what it wrote is kept if it ends well, else all undone."""
        try:
            if not self._writes:
                return view(self, **self._request.path_params)
            with self.db:
                return view(self, **self._request.path_params)
        except Missing:
            return self.page("missing.html.j2", 404)


# --- how things are written on all sites --------------------------------------------------------


def money(cents: int) -> str:
    """123450 -> $1,234.50"""
    return f"-${-cents / 100:,.2f}" if cents < 0 else f"${cents / 100:,.2f}"


def day(iso: str) -> str:
    """2023-06-05... -> Jun 5, 2023"""
    date = datetime.date.fromisoformat(iso[:10])
    return f"{date:%b} {date.day}, {date.year}"


def moment(iso: str) -> str:
    """2023-06-05 09:30:00 -> Jun 5, 2023, 09:30"""
    return f"{day(iso)}, {iso[11:16]}"


def plural(count: int, one: str, many: str = "") -> str:
    """1, "item" -> 1 item; 3, "item" -> 3 items"""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
