"""The way from one place to another: a form that is told names, and the page of a route."""

from __future__ import annotations

from typing import Any, get_args

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.map import svg_map
from webagent_jax.arena.map.network import Mode
from webagent_jax.arena.map.places import ROW, find
from webagent_jax.arena.map.routes import Spot, route
from webagent_jax.arena.map.svg_map import Pin
from webagent_jax.arena.map.terrain import between
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()

WAYS: dict[Mode, str] = {"car": "Car", "bike": "Bike", "foot": "Foot"}


@views.get("/directions")
def directions(visit: Visit) -> Response:
    """Goes on to the route once both ends are clear."""
    form = Form(visit.query)
    if "from" not in visit.query or "to" not in visit.query:
        return _form(visit, form)
    by = form.choice("by", get_args(Mode))
    ends = [_place(visit, form, name) for name in ("from", "to")]
    if form.errors or None in ends:
        return _form(visit, form, 422, dict(zip(("from", "to"), ends, strict=True)))
    first, last = (end[0] for end in ends if end)
    if first["slug"] == last["slug"]:
        form.errors["to"] = "You are there already: both ends are the same place."
        return _form(visit, form, 422)
    return visit.redirect(f"/route/{by}/{first['slug']}/{last['slug']}")


def _form(
    visit: Visit, form: Form, status: int = 200, ends: dict[str, Any] | None = None
) -> Response:
    choices = {name: found for name, found in (ends or {}).items() if found and len(found) > 1}
    picture = svg_map.picture(svg_map.region())
    return visit.page(
        "directions.html.j2", status, form=form, ways=WAYS, choices=choices, picture=picture
    )


def _place(visit: Visit, form: Form, field: str) -> list[Any] | None:
    """The one place that is meant; several, with an error, when it is not clear; None for none."""
    asked = form.text(field)
    if not asked:
        return None
    exact = visit.rows(
        f"SELECT {ROW} FROM place JOIN category ON category.id = category_id"
        " WHERE lower(place.name) = ?1 OR lower(place.name || ', ' || town) = ?1"
        " OR lower(street || ', ' || town) = ?1 OR place.slug = ?1 LIMIT 4",
        asked.lower(),
    )
    if len(exact) == 1:
        return exact
    words = asked.lower().replace(",", " ").split()[:12]
    condition = " AND ".join("instr(words, ?)" for _ in words)
    some = exact or visit.rows(
        f"SELECT {ROW} FROM place JOIN category ON category.id = category_id WHERE {condition}"
        " ORDER BY place.name LIMIT 4",
        *words,
    )
    if len(some) == 1:
        return some
    form.errors[field] = (
        f"Several places fit \u201c{asked}\u201d."
        if some
        else f"No place fits \u201c{asked}\u201d."
    )
    return some or None


@views.get("/route/{by}/{start}/{end}")
def way(visit: Visit, by: str, start: str, end: str) -> Response:
    """The quickest way by car, by bike or on foot."""
    mode: Mode | None = next((mode for mode in WAYS if mode == by), None)
    if mode is None or start == end:
        raise Missing
    first, last = find(visit, start), find(visit, end)
    spots = [Spot(each["edge"], each["along"]) for each in (first, last)]
    quickest = route(spots[0], spots[1], mode)
    points = [(each["x"], each["y"]) for each in (first, last)]
    frame = svg_map.around([*points, *quickest.line])
    pins = [Pin(points[0], "A"), Pin(points[1], "B")]
    return visit.page(
        "route.html.j2",
        first=first,
        last=last,
        by=mode,
        ways=WAYS,
        route=quickest,
        straight=between(*points),
        picture=svg_map.picture(frame, pins, quickest.line),
    )
