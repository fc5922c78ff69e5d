"""Views of places: start page, search, sections, categories, towns, details and nearby places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.common import NOW
from webagent_jax.arena.forms import Form
from webagent_jax.arena.map import svg_map
from webagent_jax.arena.map.data import is_open
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.svg_map import Pin
from webagent_jax.arena.map.terrain import straight_distance, to_degrees, to_point
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()

PAGE_SIZE = 8  # places per page
DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

OPENINGS = {"now": "Open now", "saturday": "Open on Saturday", "sunday": "Open on Sunday"}

PLACE_COLUMNS = (
    "place.id, place.name, place.slug, street, town, zip_code, hours, open_now, accessible, x, y,"
    " category.name AS category"
)
_FROM = "FROM place JOIN category ON category.id = category_id WHERE"


@views.get("/")
def start(request: RequestContext) -> Response:
    picture = svg_map.draw_map(svg_map.region_frame())
    towns = request.rows("SELECT name, slug FROM town ORDER BY name")
    return request.render("start.html.j2", picture=picture, towns=towns)


@views.get("/browse/{section}")
def section(request: RequestContext, section: str) -> Response:
    categories = request.rows(
        "SELECT category.*, count(*) AS places FROM category JOIN place ON category_id = "
        "category.id"
        " WHERE lower(replace(section, ' & ', '-')) = ? GROUP BY category.id ORDER BY category.id",
        section,
    )
    if not categories:
        raise NotFound
    picture = svg_map.draw_map(svg_map.region_frame())
    return request.render("section.html.j2", categories=categories, picture=picture)


@views.get("/search")
def search(request: RequestContext) -> Response:
    """Show places whose name, category or address contains all the words, in any order."""
    query = request.query.get("q", "").strip()
    if not query:
        return request.redirect("/", "Type what you are looking for.")
    condition = WhereClause()
    for word in query.lower().replace(",", " ").split()[:12]:
        condition.add("instr(words, ?)", word)
    # A place with exactly this name comes first.
    order = "lower(place.name) != ?, category.listed, place.name"
    heading = f"Results for \u201c{query}\u201d"
    return _render_list(request, heading, condition, order, query.lower())


@views.get("/category/{slug}")
def category(request: RequestContext, slug: str) -> Response:
    row = request.row("SELECT * FROM category WHERE slug = ? AND listed", slug)
    condition = WhereClause()
    condition.add("category_id = ?", row["id"])
    return _render_list(request, row["plural"], condition, "place.name")


def _render_list(
    request: RequestContext,
    heading: str,
    condition: WhereClause,
    order: str,
    *order_arguments: str,
) -> Response:
    """Show a filtered list of places, and a map of them."""
    if redirect := request.redirect_without_blanks():
        return redirect
    _add_filters(condition, request)
    from_clause = f"{_FROM} {condition.sql} ORDER BY {order}"
    pagination = paginate(
        request,
        PLACE_COLUMNS,
        from_clause,
        condition.arguments,
        size=PAGE_SIZE,
        order_arguments=order_arguments,
    )
    towns = [name for (name,) in request.rows("SELECT name FROM town ORDER BY name")]
    return request.render(
        "places.html.j2",
        heading=heading,
        pagination=pagination,
        form=Form(request.query),
        towns=towns,
        openings=list(OPENINGS.items()),
        is_filtered=any(request.query.get(name) for name in ("town", "open", "wheelchair")),
        picture=_render_pins(pagination.rows),
    )


def _add_filters(condition: WhereClause, request: RequestContext) -> None:
    """Add the filters of the query; ignore unknown values."""
    if town := request.query.get("town"):
        condition.add("town = ?", town)
    if (opening := request.query.get("open", "")) in OPENINGS:
        condition.add(f"open_{opening}")
    if request.query.get("wheelchair"):
        condition.add("accessible")


def _render_pins(rows: Sequence[Any]) -> Any:
    """Return a map with the numbered places of a list."""
    points = [(row["x"], row["y"]) for row in rows]
    pins = [Pin(point, str(i)) for i, point in enumerate(points, 1)]
    frame = svg_map.fit_frame(points, min_scale=4.7) if points else svg_map.region_frame()
    return svg_map.draw_map(frame, pins[::-1])


@views.get("/town/{slug}")
def town(request: RequestContext, slug: str) -> Response:
    row = request.row("SELECT * FROM town WHERE slug = ?", slug)
    categories = request.rows(
        "SELECT plural, category.slug, count(*) AS places"
        " FROM place JOIN category ON category.id = category_id WHERE town = ? AND listed"
        " GROUP BY category.id ORDER BY places DESC, category.id LIMIT 12",
        row["name"],
    )
    total = request.value(
        "SELECT count(*) FROM place JOIN category ON category.id = category_id"
        " WHERE town = ? AND listed",
        row["name"],
    )
    frame = svg_map.Frame(row["x"], row["y"], 5.2)
    latitude, longitude = to_degrees((row["x"], row["y"]))
    return request.render(
        "town.html.j2",
        town=row,
        categories=categories,
        total=total,
        latitude=latitude,
        longitude=longitude,
        picture=svg_map.draw_map(frame),
    )


# --- one place -----------------------------------------------------------------------------------


@views.get("/place/{slug}")
def place(request: RequestContext, slug: str) -> Response:
    place_row = find_place(request, slug)
    point = place_row["x"], place_row["y"]
    latitude, longitude = to_degrees(point)
    saved = request.rows(
        "SELECT list.id, list.name FROM saved JOIN list ON list.id = list_id"
        " WHERE place_id = ? AND person_id = ? ORDER BY list.id",
        *(place_row["id"], request.session.account_id),
    )
    lists = request.rows(
        "SELECT id, name FROM list WHERE person_id = ? ORDER BY id", request.session.account_id
    )
    reports = request.rows(
        "SELECT problem FROM report WHERE place_id = ? AND status = 'Open' ORDER BY id DESC LIMIT "
        "3",
        place_row["id"],
    )
    return request.render(
        "place.html.j2",
        place=place_row,
        latitude=latitude,
        longitude=longitude,
        hours=format_hours(place_row["hours"]),
        opening=_opening_status(place_row["hours"]),
        saved=saved,
        lists=[entry for entry in lists if entry["id"] not in {row["id"] for row in saved}],
        nearby_places=_find_nearby(request, place_row, limit=3),
        reports=reports,
        picture=svg_map.draw_map(svg_map.Frame(*point, 1.9), [Pin(point)]),
    )


def find_place(request: RequestContext, slug: str) -> Any:
    return request.row(
        "SELECT place.*, category.name AS category, category.slug AS category_slug, listed"
        " FROM place JOIN category ON category.id = category_id WHERE place.slug = ?",
        slug,
    )


def format_hours(hours: str) -> list[str]:
    """Return opening hours such as "Mon-Fri 08:00-18:00", "Sat 09:00-12:00", "Sun closed"."""
    if not hours:
        return []
    days = hours.split(";")
    if all(day == "00:00-24:00" for day in days):
        return ["Open 24 hours"]
    lines: list[str] = []
    start = 0
    for end in range(1, 8):
        if end == 7 or days[end] != days[start]:
            span = (
                DAY_NAMES[start] if end == start + 1 else f"{DAY_NAMES[start]}-{DAY_NAMES[end - 1]}"
            )
            lines.append(f"{span} {days[start] or 'closed'}")
            start = end
    return lines


def _opening_status(hours: str) -> str:
    """Return the opening status at the current time, "" if it is unknown or always open."""
    if not hours:
        return ""
    today = hours.split(";")[NOW.weekday()]
    if today == "00:00-24:00":
        return ""
    if is_open(today, f"{NOW:%H:%M}"):
        return f"Open until {today[6:]}"
    return f"Closed, opens at {today[:5]}" if today[:5] > f"{NOW:%H:%M}" else "Closed"


def _find_nearby(request: RequestContext, place: Any, *, limit: int) -> list[Any]:
    return request.rows(
        f"SELECT {PLACE_COLUMNS}, {_DISTANCE_SQL} AS away {_FROM} listed AND place.id != ?"
        f" ORDER BY {_DISTANCE_SQL}, place.id LIMIT {limit}",
        *(place["x"], place["x"], place["y"], place["y"], place["id"]),
        *(place["x"], place["x"], place["y"], place["y"]),
    )


_DISTANCE_SQL = "(x - ?) * (x - ?) + (y - ?) * (y - ?)"


@views.get("/place/{slug}/nearby")
def nearby(request: RequestContext, slug: str) -> Response:
    """Show places of one or all categories, sorted by straight-line distance."""
    if redirect := request.redirect_without_blanks():
        return redirect
    place_row = find_place(request, slug)
    condition = WhereClause()
    condition.add("listed AND place.id != ?", place_row["id"])
    if category_slug := request.query.get("category"):
        condition.add("category.slug = ?", category_slug)
    if (opening := request.query.get("open", "")) in OPENINGS:
        condition.add(f"open_{opening}")
    x, y = place_row["x"], place_row["y"]
    distance_sql = f"(x - {x}) * (x - {x}) + (y - {y}) * (y - {y})"
    from_clause = f"{_FROM} {condition.sql} ORDER BY {distance_sql}, place.id"
    pagination = paginate(request, PLACE_COLUMNS, from_clause, condition.arguments, size=PAGE_SIZE)
    points = [(row["x"], row["y"]) for row in pagination.rows]
    pins = [*(Pin(p, str(i)) for i, p in enumerate(points, 1)), Pin((x, y))]
    return request.render(
        "nearby.html.j2",
        place=place_row,
        pagination=pagination,
        distances=[straight_distance((x, y), point) for point in points],
        categories=request.rows("SELECT slug, plural FROM category WHERE listed ORDER BY plural"),
        openings=list(OPENINGS.items()),
        form=Form(request.query),
        picture=svg_map.draw_map(svg_map.fit_frame([(x, y), *points]), pins[::-1]),
    )


# --- by coordinates ------------------------------------------------------------------------------


@views.get("/coordinates")
def coordinates(request: RequestContext) -> Response:
    """Show the address and the places nearest to coordinates."""
    form = Form(request.query)
    if not request.query:
        return request.render(
            "coordinates.html.j2", form=form, picture=svg_map.draw_map(svg_map.region_frame())
        )
    latitude = _read_degrees(form, "lat", 46.8, 47.6)
    longitude = _read_degrees(form, "lon", -39.2, -38.0)
    if form.errors:
        picture = svg_map.draw_map(svg_map.region_frame())
        return request.render("coordinates.html.j2", 422, form=form, picture=picture)
    point = to_point(latitude, longitude)
    edge, _, distance = network().nearest_edge(point)
    zip_code = request.value("SELECT zip_code FROM town WHERE name = ?", edge.town)
    x, y = point
    nearby_rows = request.rows(
        f"SELECT {PLACE_COLUMNS} {_FROM} listed ORDER BY {_DISTANCE_SQL}, place.id LIMIT 5",
        x,
        x,
        y,
        y,
    )
    pins = [
        *(Pin((row["x"], row["y"]), str(i)) for i, row in enumerate(nearby_rows, 1)),
        Pin(point),
    ]
    return request.render(
        "coordinates.html.j2",
        form=form,
        street=edge.name,
        town=edge.town,
        zip_code=zip_code,
        distance=distance,
        nearby_places=nearby_rows,
        distances=[straight_distance(point, (row["x"], row["y"])) for row in nearby_rows],
        picture=svg_map.draw_map(svg_map.fit_frame([pin.point for pin in pins]), pins[::-1]),
    )


def _read_degrees(form: Form, name: str, min_value: float, max_value: float) -> float:
    text = form.text(name)
    if name in form.errors:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        form.errors[name] = "Enter degrees as a number, such as 47.2015."
        return 0.0
    if not min_value <= value <= max_value:
        form.errors[name] = f"The map goes from {min_value} to {max_value}."
    return value
