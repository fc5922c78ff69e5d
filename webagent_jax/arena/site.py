"""Framework of the arena's sites: a site, its views, and the context of a request.

A view is a function from a request context to a response. GET views read, POST views may write: the
request method selects the database connection of a view. A GET view that writes raises an error.
"""

from __future__ import annotations

import datetime
import functools
import logging
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
from webagent_jax.arena.worlds import SiteSession, World

View = Callable[..., Response]
"""View function: its arguments are the request context and, as keywords, the path parameters."""

_SHARED_TEMPLATES = Path(__file__).parent / "templates"
# Going back shows the current state of a page, not the previous one.
_UNCACHED = {"Cache-Control": "no-store"}
_CACHED = {"Cache-Control": "public, max-age=86400"}


class NotFound(Exception):
    """Missing page, product or post; the response is a 404 in the site's layout."""


@dataclass(frozen=True)
class Site:
    """Web site of the arena."""

    name: str  # first part of its hostname: "shop"
    task_name: str  # name in WebArena's task files: "shopping"
    title: str  # name on its pages: "Marigold"
    description: str  # one line for the index page
    database: Database
    views: Sequence[ViewRegistry]
    folder: Path  # contains templates/ and style.css
    account_id: int | None = None  # account signed in when a world is created; None for none
    # Context for every template.
    template_context: Callable[[RequestContext], Mapping[str, Any]] = lambda request: {}
    filters: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        """Return the routes of the style sheet, of all views, and of missing pages."""
        environment = self._environment()
        style = (self.folder / "style.css").read_bytes()

        async def stylesheet(request: Request) -> Response:
            return Response(style, media_type="text/css", headers=_CACHED)

        return [
            Route("/style.css", stylesheet),
            *(
                Route(path, self._endpoint(view, environment), methods=[method])
                for views in self.views
                for method, path, view in views.entries
            ),
            Route(
                # Last, because routes are matched in order.
                "/{path:path}",
                self._endpoint(_raise_not_found, environment),
                methods=["GET", "POST"],
            ),
        ]

    def reserved_names(self, start: str) -> set[str]:
        """Return the names that follow `start` in the addresses of the pages."""
        paths = [path for registry in self.views for _, path, _ in registry.entries]
        return {
            path.removeprefix(start).partition("/")[0] for path in paths if path.startswith(start)
        }

    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([self.folder / "templates", _SHARED_TEMPLATES]),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.filters.update(
            money=format_money, day=format_day, moment=format_time, plural=pluralize
        )
        environment.filters.update(self.filters)
        environment.globals.update(site=self, today=common.TODAY)
        return environment

    def _endpoint(self, view: View, environment: jinja2.Environment) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            # Blank values stay, so that an empty field differs from a missing one.
            text = (await request.body()).decode(errors="replace")
            fields = parse_qsl(text, keep_blank_values=True)
            world = request.scope["world"]
            context = RequestContext(self, world, request, dict(fields), environment)
            try:
                return context.dispatch(view)
            except Exception:  # the other pages stay usable, and the browser can go on to them
                logging.exception("the page %s has failed", context.path)
                return context.render("failed.html.j2", 500)

        return endpoint


def _raise_not_found(request: RequestContext, path: str) -> Response:
    raise NotFound


class ViewRegistry:
    """Views of a site, collected by decorators; several modules may share a registry.

    A view with `signed_in` redirects to the sign-in page unless an account is signed in.

    Args:
        signed_in: whether all views require an account.
    """

    def __init__(self, *, signed_in: bool = False) -> None:
        self.entries: list[tuple[str, str, View]] = []  # method, path, view
        self._signed_in = signed_in

    def get(self, path: str, *, signed_in: bool = False) -> Callable[[View], View]:
        """Return a decorator that adds a view for GET requests."""
        return self._register("GET", path, signed_in)

    def post(self, path: str, *, signed_in: bool = False) -> Callable[[View], View]:
        """Return a decorator that adds a view for POST requests."""
        return self._register("POST", path, signed_in)

    def _register(self, method: str, path: str, signed_in: bool) -> Callable[[View], View]:
        def add(view: View) -> View:
            requires_account = signed_in or self._signed_in
            entry = (method, path, _require_sign_in(view) if requires_account else view)
            self.entries.append(entry)
            return view

        return add


def _require_sign_in(view: View) -> View:
    def guarded_view(request: RequestContext, **parts: Any) -> Response:
        if not request.session.account_id:
            return request.redirect_to_sign_in()
        return view(request, **parts)

    return guarded_view


class RequestContext:
    """Context of a request: its path and form, the account and the database."""

    def __init__(
        self,
        site: Site,
        world: World,
        request: Request,
        form: Mapping[str, str],
        environment: jinja2.Environment,
    ) -> None:
        self.site = site
        self.world = world
        self.path = request.url.path
        self.query = request.query_params
        self.form = form  # a field that is sent twice has its last value
        self._request = request
        self._environment = environment
        self._writes = request.method == "POST"

    @functools.cached_property
    def db(self) -> sqlite3.Connection:
        """Connection to the site's database: writable for POST requests, else read-only."""
        if self._writes:
            return self.world.writer(self.site.database.name)
        return self.world.reader(self.site.database.name)

    @property
    def session(self) -> SiteSession:
        """Session of the world's browser on this site."""
        return self.world.sessions[self.site.name]

    @property
    def today(self) -> str:
        """Date of the arena, in ISO format."""
        return common.TODAY.isoformat()

    @property
    def now(self) -> str:
        """Time of the arena, in ISO format with a space."""
        return common.NOW.isoformat(" ")

    @property
    def full_path(self) -> str:
        """Path and query of this request, to which a later page can return."""
        query = self._request.url.query
        return f"{self.path}?{query}" if query else self.path

    def row(self, sql: str, *arguments: Any) -> sqlite3.Row:
        """Return the first row of a query.

        Raises:
            NotFound: there is no row.
        """
        row: sqlite3.Row | None = self.db.execute(sql, arguments).fetchone()
        if row is None:
            raise NotFound
        return row

    def rows(self, sql: str, *arguments: Any) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        return self.db.execute(sql, arguments).fetchall()

    def value(self, sql: str, *arguments: Any) -> Any:
        """Return the first column of the first row of a query; None without a row."""
        row = self.db.execute(sql, arguments).fetchone()
        return None if row is None else row[0]

    def execute(self, sql: str, *arguments: Any) -> int:
        """Run a statement that writes; return the id of the last inserted row."""
        return self.db.execute(sql, arguments).lastrowid or 0

    def flash(self, message: str) -> None:
        """Show a message at the top of the next page."""
        self.session.flashes.append(message)

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """Return the page of a template, with all messages of `flash` that are not yet shown."""
        # Copied and cleared before rendering: each message is shown once.
        flashes = self.session.flashes[:]
        self.session.flashes.clear()
        text = self._environment.get_template(template).render(
            request=self, flashes=flashes, **self.site.template_context(self), **context
        )
        # Chromium goes back to the response to a POST only if it has stored it.
        return HTMLResponse(text, status, headers=None if self._writes else _UNCACHED)

    def redirect(self, path: str, flash: str = "", /, **query: Any) -> Response:
        """Redirect to a path of this site with GET, and show `flash` there.

        The first arguments are positional, because a query may have the fields "path" and "flash".
        """
        if flash:
            self.flash(flash)
        # Status 303 makes the browser send a GET, so that a reload does not post again.
        return RedirectResponse(f"{path}?{urlencode(query)}" if query else path, 303)

    def redirect_without_blanks(self) -> Response | None:
        """Redirect to this page without the empty fields of its query; None if there are none."""
        fields = {name: value for name, value in self.query.items() if value}
        return self.redirect(self.path, **fields) if len(fields) < len(self.query) else None

    def sign_in(self, account_id: int, home: str) -> Response:
        """Sign in and redirect to the page before the sign-in page, or to `home` without one."""
        self.set_account(account_id)
        return self.redirect(self.return_path(home), "Welcome back.")

    def set_account(self, account_id: int) -> None:
        """Sign in, and forget pending inputs of another account; those of a visitor stay."""
        if self.session.account_id not in (None, account_id):
            self.session.pending_inputs.clear()
        self.session.account_id = account_id

    def sign_out(self, home: str) -> Response:
        """Sign out, forget pending inputs, and redirect to `home`."""
        self.session.account_id = None
        self.session.pending_inputs.clear()
        return self.redirect(home, "You are signed out.")

    def return_path(self, default: str) -> str:
        """Return the path of this site in the form field "back", or `default` without one."""
        path = self.form.get("back", "")
        # "//host" and "/\host" are addresses of other sites to a browser.
        return path if re.match(r"/(?![/\\])", path) else default

    def redirect_to_sign_in(self) -> Response:
        """Redirect to the sign-in page, which leads back to this page."""
        # A POST cannot be repeated by a redirect.
        back = "/" if self._writes else self.full_path
        return self.redirect("/sign-in", "Please sign in to go on.", back=back)

    def dispatch(self, view: View) -> Response:
        """Return the response of a view; its writes are rolled back if it raises.

        An integer in the address that is too large for the database is that of no page.
        """
        try:
            if not self._writes:
                return view(self, **self._request.path_params)
            with self.db:
                # Commits on return and rolls back on an exception, NotFound included.
                return view(self, **self._request.path_params)
        except (NotFound, OverflowError):
            return self.render("missing.html.j2", 404)


# --- formats of all sites ------------------------------------------------------------------------


def format_money(cents: int) -> str:
    """Return an amount as text: 123450 gives $1,234.50."""
    return f"-${-cents / 100:,.2f}" if cents < 0 else f"${cents / 100:,.2f}"


def format_day(iso: str) -> str:
    """Return the day of an ISO date or time as text: 2023-06-05 gives Jun 5, 2023."""
    date = datetime.date.fromisoformat(iso[:10])
    return f"{date:%b} {date.day}, {date.year}"


def format_time(iso: str) -> str:
    """Return an ISO time as text: 2023-06-05 09:30:00 gives Jun 5, 2023, 09:30."""
    return f"{format_day(iso)}, {iso[11:16]}"


def to_slug(name: str) -> str:
    """Return a name as it appears in addresses: Frying Pan gives frying-pan."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def pluralize(count: int, singular: str, plural_noun: str = "") -> str:
    """Return a count with its noun: 1 item, 3 items; `plural_noun` is an irregular plural."""
    return f"{count:,} {singular if count == 1 else plural_noun or singular + 's'}"
