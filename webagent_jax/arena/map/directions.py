"""Views of directions: the form with two place names, and the page of a route."""

from __future__ import annotations

from typing import Any, get_args

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.map import svg_map
from webagent_jax.arena.map.network import Mode
from webagent_jax.arena.map.places import PLACE_COLUMNS, find_place
from webagent_jax.arena.map.routes import Spot, find_route
from webagent_jax.arena.map.svg_map import Pin
from webagent_jax.arena.map.terrain import straight_distance
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()

MODE_NAMES: dict[Mode, str] = {"car": "Car", "bike": "Bike", "foot": "Foot"}


@views.get("/directions")
def directions(request: RequestContext) -> Response:
    """Redirect to the route once both ends are unique."""
    form = Form(request.query)
    if "from" not in request.query or "to" not in request.query:
        return _render_form(request, form)
    mode = form.choice("by", get_args(Mode))
    ends = [_find_places(request, form, name) for name in ("from", "to")]
    if form.errors or None in ends:
        return _render_form(request, form, 422, dict(zip(("from", "to"), ends, strict=True)))
    start, end = (matches[0] for matches in ends if matches)
    if start["slug"] == end["slug"]:
        form.errors["to"] = "You are there already: both ends are the same place."
        return _render_form(request, form, 422)
    return request.redirect(f"/route/{mode}/{start['slug']}/{end['slug']}")


def _render_form(
    request: RequestContext, form: Form, status: int = 200, ends: dict[str, Any] | None = None
) -> Response:
    choices = {name: rows for name, rows in (ends or {}).items() if rows and len(rows) > 1}
    picture = svg_map.draw_map(svg_map.region_frame())
    return request.render(
        "directions.html.j2", status, form=form, modes=MODE_NAMES, choices=choices, picture=picture
    )


def _find_places(request: RequestContext, form: Form, field: str) -> list[Any] | None:
    """Return the matching place; several and a form error if ambiguous; None without any."""
    text = form.text(field)
    if not text:
        return None
    exact_matches = request.rows(
        f"SELECT {PLACE_COLUMNS} FROM place JOIN category ON category.id = category_id"
        " WHERE lower(place.name) = ?1 OR lower(place.name || ', ' || town) = ?1"
        " OR lower(street || ', ' || town) = ?1 OR place.slug = ?1 LIMIT 4",
        text.lower(),
    )
    if len(exact_matches) == 1:
        return exact_matches
    words = text.lower().replace(",", " ").split()[:12]
    condition = " AND ".join("instr(words, ?)" for _ in words)
    matches = exact_matches or request.rows(
        f"SELECT {PLACE_COLUMNS} FROM place JOIN category ON category.id = category_id"
        f" WHERE {condition} ORDER BY place.name LIMIT 4",
        *words,
    )
    if len(matches) == 1:
        return matches
    form.errors[field] = (
        f"Several places fit \u201c{text}\u201d."
        if matches
        else f"No place fits \u201c{text}\u201d."
    )
    return matches or None


@views.get("/route/{mode_name}/{start}/{end}")
def route_page(request: RequestContext, mode_name: str, start: str, end: str) -> Response:
    """Show the quickest route by car, by bike or on foot."""
    mode: Mode | None = next((mode for mode in MODE_NAMES if mode == mode_name), None)
    if mode is None or start == end:
        raise NotFound
    start_place, end_place = find_place(request, start), find_place(request, end)
    spots = [Spot(place["edge"], place["along"]) for place in (start_place, end_place)]
    best_route = find_route(spots[0], spots[1], mode)
    points = [(place["x"], place["y"]) for place in (start_place, end_place)]
    frame = svg_map.fit_frame([*points, *best_route.line])
    pins = [Pin(points[0], "A"), Pin(points[1], "B")]
    return request.render(
        "route.html.j2",
        start=start_place,
        end=end_place,
        mode=mode,
        modes=MODE_NAMES,
        route=best_route,
        straight=straight_distance(*points),
        picture=svg_map.draw_map(frame, pins, best_route.line),
    )
