"""Base of all back-office views: access for staff only, and lists with filters."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Pagination, WhereClause
from webagent_jax.arena.site import RequestContext, View, ViewRegistry

ROWS_PER_PAGE = 8  # rows on a page of a list


class StaffViews(ViewRegistry):
    """Views that redirect to the sign-in page unless a member of the staff is signed in."""

    def get(self, path: str) -> Callable[[View], View]:
        add = super().get(path)
        return lambda view: add(_require_sign_in(view))

    def post(self, path: str) -> Callable[[View], View]:
        add = super().post(path)
        return lambda view: add(_require_sign_in(view))


def _require_sign_in(view: View) -> View:
    @functools.wraps(view)
    def wrapper(request: RequestContext, **parts: Any) -> Response:
        return (
            view(request, **parts) if request.session.account_id else request.redirect_to_sign_in()
        )

    return wrapper


def staff_name(request: RequestContext) -> str:
    """Return the name of the signed-in member of the staff."""
    name = request.value(
        "SELECT first || ' ' || last FROM customer WHERE id = ?", request.session.account_id
    )
    return str(name or "")


# --- filters of lists ----------------------------------------------------------------------------


def redirect_to_canonical(request: RequestContext, *names: str) -> Response | None:
    """Redirect to the canonical address of a filter; None if the request already has it.

    A canonical address has the fields in the order of `names`, no empty fields, and ISO days in the
    fields "from" and "to".
    """
    parameters = {name: request.query.get(name, "").strip() for name in (*names, "page")}
    parameters = {name: value for name, value in parameters.items() if value}
    for name in parameters.keys() & {"from", "to"}:
        parameters[name] = parse_day(parameters[name]) or parameters[name]
    if list(parameters.items()) == list(request.query.multi_items()):
        return None
    return request.redirect(request.path, **parameters)


_DAY_FORMATS = ("%Y-%m-%d", "%m/%d/%Y", "%b %d, %Y", "%B %d, %Y")


def parse_day(text: str) -> str:
    """Return a day in ISO format, also from 1/31/2023 or Jan 31, 2023; "" for any other text."""
    for day_format in _DAY_FORMATS:
        try:
            return datetime.datetime.strptime(text.strip(), day_format).date().isoformat()
        except ValueError:
            continue
    return ""


def read_day(form: Form, name: str, *, required: bool = True) -> str:
    """Return the ISO day in a field; "" without one."""
    text = form.text(name, required=required, max_chars=20)
    day = parse_day(text)
    if text and not day:
        form.errors[name] = "Enter a day, such as 2023-06-15."
    return day


def add_date_range(
    form: Form, condition: WhereClause, column: str, *, required: bool = False
) -> None:
    """Require that a column is between the days in the fields "from" and "to"."""
    first = read_day(form, "from", required=required)
    last = read_day(form, "to", required=required)
    if first and last and first > last:
        form.errors["to"] = "This day is before the first one."
    if first:
        condition.add(f"{column} >= ?", first)
    if last:
        condition.add(f"{column} < date(?, '+1 day')", last)


def optional_choice(form: Form, name: str, options: Sequence[str]) -> str:
    """Return the choice in an optional field of a filter; "" without one."""
    return form.choice(name, options) if form.values.get(name) else ""


def paginate_rows(request: RequestContext, rows: Sequence[Any]) -> Pagination:
    """Return the page of `rows` that the query parameter `page` selects."""
    page_argument = request.query.get("page", "1")
    size = ROWS_PER_PAGE
    number = int(page_argument) if re.fullmatch(r"\d{1,6}", page_argument) else 1
    number = min(max(number, 1), max(1, -(-len(rows) // size)))
    parameters = [(key, value) for key, value in request.query.items() if key != "page"]
    href = f"{request.path}?{urlencode([*parameters, ('page', '')])}"
    return Pagination(rows[(number - 1) * size : number * size], len(rows), number, size, href)
