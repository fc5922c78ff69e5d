"""Helpers of all back-office views: the staff member, and lists with filters."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from webagent_jax.arena.forms import Form, parse_day
from webagent_jax.arena.pagination import WhereClause
from webagent_jax.arena.site import RequestContext

ROWS_PER_PAGE = 8  # rows on a page of a list


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


def add_date_range(
    form: Form, condition: WhereClause, column: str, *, required: bool = False
) -> None:
    """Require that a column is between the days in the fields "from" and "to"."""
    first = form.day("from", required=required)
    last = form.day("to", required=required)
    if first and last and first > last:
        form.errors["to"] = "This day is before the first one."
    if first:
        condition.add(f"{column} >= ?", first)
    if last:
        condition.add(f"{column} < date(?, '+1 day')", last)


def optional_choice(form: Form, name: str, options: Sequence[str]) -> str:
    """Return the choice in an optional field of a filter; "" without one."""
    return form.choice(name, options) if form.values.get(name) else ""
