"""What all pages of the back office share: they are for staff, and their lists are narrowed."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, Listing
from webagent_jax.arena.site import View, Views, Visit

ROWS = 8  # of a list on a page


class StaffViews(Views):
    """Pages that lead to the sign-in page until one is signed in."""

    def get(self, path: str) -> Callable[[View], View]:
        add = super().get(path)
        return lambda view: add(_guarded(view))

    def post(self, path: str) -> Callable[[View], View]:
        add = super().post(path)
        return lambda view: add(_guarded(view))


def _guarded(view: View) -> View:
    @functools.wraps(view)
    def guarded(visit: Visit, **parts: Any) -> Response:
        return view(visit, **parts) if visit.session.account else visit.sign_in_first()

    return guarded


def author(visit: Visit) -> str:
    """The name of who is signed in."""
    found = visit.value(
        "SELECT first || ' ' || last FROM customer WHERE id = ?", visit.session.account
    )
    return str(found or "")


# --- narrowing lists -----------------------------------------------------------------------------


def tidied(visit: Visit, *names: str) -> Response | None:
    """Leads to the one address that a filter has: its fields in this order, none empty.

    Days ("from", "to") are written as 2023-01-31 in it.
    """
    kept = {name: visit.query.get(name, "").strip() for name in (*names, "page")}
    kept = {name: value for name, value in kept.items() if value}
    for name in kept.keys() & {"from", "to"}:
        kept[name] = as_day(kept[name]) or kept[name]
    if list(kept.items()) == list(visit.query.multi_items()):
        return None
    return visit.redirect(visit.path, **kept)


_DAYS = ("%Y-%m-%d", "%m/%d/%Y", "%b %d, %Y", "%B %d, %Y")


def as_day(text: str) -> str:
    """2023-01-31, of 1/31/2023 or Jan 31, 2023 as well; "" of anything else."""
    for form in _DAYS:
        try:
            return datetime.datetime.strptime(text.strip(), form).date().isoformat()
        except ValueError:
            continue
    return ""


def day_field(form: Form, name: str, *, required: bool = True) -> str:
    """A field with a day; "" where there is none."""
    text = form.text(name, required=required, most=20)
    found = as_day(text)
    if text and not found:
        form.errors[name] = "Enter a day, such as 2023-06-15."
    return found


def span(form: Form, condition: Condition, column: str, *, required: bool = False) -> None:
    """Keeps what a column dates between the fields "from" and "to"."""
    first = day_field(form, "from", required=required)
    last = day_field(form, "to", required=required)
    if first and last and first > last:
        form.errors["to"] = "This day is before the first one."
    if first:
        condition.add(f"{column} >= ?", first)
    if last:
        condition.add(f"{column} < date(?, '+1 day')", last)


def one_of(form: Form, name: str, among: Sequence[str]) -> str:
    """An optional choice of a filter."""
    return form.choice(name, among) if form.values.get(name) else ""


def sliced(visit: Visit, rows: Sequence[Any], size: int = ROWS) -> Listing:
    """The page that `?page=` asks for, of rows that are all there already."""
    asked = visit.query.get("page", "1")
    number = int(asked) if re.fullmatch(r"\d{1,6}", asked) else 1
    number = min(max(number, 1), max(1, -(-len(rows) // size)))
    kept = [(key, value) for key, value in visit.query.items() if key != "page"]
    href = f"{visit.path}?{urlencode([*kept, ('page', '')])}"
    return Listing(rows[(number - 1) * size : number * size], len(rows), number, size, href)
