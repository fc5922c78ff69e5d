"""Finding places: start page, search, sections, categories, towns, one place, and what is near."""

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
from webagent_jax.arena.map.terrain import between, degrees, metres
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()

PAGE = 8  # places
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

OPENINGS = {"now": "Open now", "saturday": "Open on Saturday", "sunday": "Open on Sunday"}

ROW = (
    "place.id, place.name, place.slug, street, town, zip_code, hours, open_now, accessible, x, y,"
    " category.name AS category"
)
_FROM = "FROM place JOIN category ON category.id = category_id WHERE"


@views.get("/")
def start(visit: Visit) -> Response:
    picture = svg_map.picture(svg_map.region())
    towns = visit.rows("SELECT name, slug FROM town ORDER BY name")
    return visit.page("start.html.j2", picture=picture, towns=towns)


@views.get("/browse/{section}")
def section(visit: Visit, section: str) -> Response:
    categories = visit.rows(
        "SELECT category.*, count(*) AS places FROM category JOIN place ON category_id = "
        "category.id"
        " WHERE lower(replace(section, ' & ', '-')) = ? GROUP BY category.id ORDER BY category.id",
        section,
    )
    if not categories:
        raise Missing
    picture = svg_map.picture(svg_map.region())
    return visit.page("section.html.j2", categories=categories, picture=picture)


@views.get("/search")
def search(visit: Visit) -> Response:
    """All words must be in the name, the category or the address, in any order."""
    asked = visit.query.get("q", "").strip()
    if not asked:
        return visit.redirect("/", "Type what you are looking for.")
    condition = Condition()
    for word in asked.lower().replace(",", " ").split()[:12]:
        condition.add("instr(words, ?)", word)
    # Whoever types a whole name wants that place first. A listing has no arguments for its order.
    whole = asked.lower().replace("'", "''")
    order = f"lower(place.name) != '{whole}', category.listed, place.name"
    return _list(visit, f"Results for \u201c{asked}\u201d", condition, order=order)


@views.get("/category/{slug}")
def category(visit: Visit, slug: str) -> Response:
    here = visit.row("SELECT * FROM category WHERE slug = ? AND listed", slug)
    condition = Condition()
    condition.add("category_id = ?", here["id"])
    return _list(visit, here["plural"], condition, order="place.name")


def _list(visit: Visit, heading: str, condition: Condition, *, order: str) -> Response:
    """A list of places, narrowed down as the visitor wants, and where they are."""
    kept = {name: value for name, value in visit.query.items() if value}
    if len(kept) < len(visit.query):  # a form sends its empty fields as well
        return visit.redirect(visit.path, **kept)
    _narrow(condition, visit)
    rest = f"{_FROM} {condition.sql} ORDER BY {order}"
    found = listing(visit, ROW, rest, condition.arguments, size=PAGE)
    towns = [name for (name,) in visit.rows("SELECT name FROM town ORDER BY name")]
    return visit.page(
        "places.html.j2",
        heading=heading,
        found=found,
        form=Form(visit.query),
        towns=towns,
        openings=list(OPENINGS.items()),
        narrowed=any(visit.query.get(name) for name in ("town", "open", "wheelchair")),
        picture=_pinned(found.rows),
    )


def _narrow(condition: Condition, visit: Visit) -> None:
    """As the visitor wants; what is not known is passed over."""
    if town := visit.query.get("town"):
        condition.add("town = ?", town)
    if (opening := visit.query.get("open", "")) in OPENINGS:
        condition.add(f"open_{opening}")
    if visit.query.get("wheelchair"):
        condition.add("accessible")


def _pinned(rows: Sequence[Any]) -> Any:
    """A map with the places of a list, numbered."""
    points = [(row["x"], row["y"]) for row in rows]
    pins = [Pin(point, str(i)) for i, point in enumerate(points, 1)]
    frame = svg_map.around(points, least=4.7) if points else svg_map.region()
    return svg_map.picture(frame, pins[::-1])


@views.get("/town/{slug}")
def town(visit: Visit, slug: str) -> Response:
    here = visit.row("SELECT * FROM town WHERE slug = ?", slug)
    categories = visit.rows(
        "SELECT plural, category.slug, count(*) AS places"
        " FROM place JOIN category ON category.id = category_id WHERE town = ? AND listed"
        " GROUP BY category.id ORDER BY places DESC, category.id LIMIT 12",
        here["name"],
    )
    total = visit.value(
        "SELECT count(*) FROM place JOIN category ON category.id = category_id"
        " WHERE town = ? AND listed",
        here["name"],
    )
    frame = svg_map.Frame(here["x"], here["y"], 5.2)
    latitude, longitude = degrees((here["x"], here["y"]))
    return visit.page(
        "town.html.j2",
        town=here,
        categories=categories,
        total=total,
        latitude=latitude,
        longitude=longitude,
        picture=svg_map.picture(frame),
    )


# --- one place -----------------------------------------------------------------------------------


@views.get("/place/{slug}")
def place(visit: Visit, slug: str) -> Response:
    here = find(visit, slug)
    point = here["x"], here["y"]
    latitude, longitude = degrees(point)
    saved = visit.rows(
        "SELECT list.id, list.name FROM saved JOIN list ON list.id = list_id"
        " WHERE place_id = ? AND person_id = ? ORDER BY list.id",
        *(here["id"], visit.session.account),
    )
    lists = visit.rows(
        "SELECT id, name FROM list WHERE person_id = ? ORDER BY id", visit.session.account
    )
    reports = visit.rows(
        "SELECT problem FROM report WHERE place_id = ? AND status = 'Open' ORDER BY id DESC LIMIT "
        "3",
        here["id"],
    )
    return visit.page(
        "place.html.j2",
        place=here,
        latitude=latitude,
        longitude=longitude,
        hours=hours_told(here["hours"]),
        opening=_status(here["hours"]),
        saved=saved,
        lists=[each for each in lists if each["id"] not in {row["id"] for row in saved}],
        near=_near(visit, here, limit=3),
        reports=reports,
        picture=svg_map.picture(svg_map.Frame(*point, 1.9), [Pin(point)]),
    )


def find(visit: Visit, slug: str) -> Any:
    return visit.row(
        "SELECT place.*, category.name AS category, category.slug AS category_slug, listed"
        " FROM place JOIN category ON category.id = category_id WHERE place.slug = ?",
        slug,
    )


def hours_told(hours: str) -> list[str]:
    """ "Mon-Fri 08:00-18:00", "Sat 09:00-12:00", "Sun closed"."""
    if not hours:
        return []
    days = hours.split(";")
    if all(day == "00:00-24:00" for day in days):
        return ["Open 24 hours"]
    told: list[str] = []
    start = 0
    for end in range(1, 8):
        if end == 7 or days[end] != days[start]:
            span = DAYS[start] if end == start + 1 else f"{DAYS[start]}-{DAYS[end - 1]}"
            told.append(f"{span} {days[start] or 'closed'}")
            start = end
    return told


def _status(hours: str) -> str:
    """What to expect at the door right now."""
    if not hours:
        return ""
    today = hours.split(";")[NOW.weekday()]
    if today == "00:00-24:00":
        return ""
    if is_open(today, f"{NOW:%H:%M}"):
        return f"Open until {today[6:]}"
    return f"Closed, opens at {today[:5]}" if today[:5] > f"{NOW:%H:%M}" else "Closed"


def _near(visit: Visit, here: Any, *, limit: int) -> list[Any]:
    return visit.rows(
        f"SELECT {ROW}, {_AWAY} AS away {_FROM} listed AND place.id != ?"
        f" ORDER BY {_AWAY}, place.id LIMIT {limit}",
        *(here["x"], here["x"], here["y"], here["y"], here["id"]),
        *(here["x"], here["x"], here["y"], here["y"]),
    )


_AWAY = "(x - ?) * (x - ?) + (y - ?) * (y - ?)"


@views.get("/place/{slug}/nearby")
def nearby(visit: Visit, slug: str) -> Response:
    """Places of one category, or of all, the nearest first, in a straight line."""
    kept = {name: value for name, value in visit.query.items() if value}
    if len(kept) < len(visit.query):
        return visit.redirect(visit.path, **kept)
    here = find(visit, slug)
    condition = Condition()
    condition.add("listed AND place.id != ?", here["id"])
    if wanted := visit.query.get("category"):
        condition.add("category.slug = ?", wanted)
    if (opening := visit.query.get("open", "")) in OPENINGS:
        condition.add(f"open_{opening}")
    x, y = here["x"], here["y"]
    away = f"(x - {x}) * (x - {x}) + (y - {y}) * (y - {y})"
    rest = f"{_FROM} {condition.sql} ORDER BY {away}, place.id"
    found = listing(visit, ROW, rest, condition.arguments, size=PAGE)
    points = [(row["x"], row["y"]) for row in found.rows]
    pins = [*(Pin(p, str(i)) for i, p in enumerate(points, 1)), Pin((x, y))]
    return visit.page(
        "nearby.html.j2",
        place=here,
        found=found,
        distances=[between((x, y), point) for point in points],
        categories=visit.rows("SELECT slug, plural FROM category WHERE listed ORDER BY plural"),
        openings=list(OPENINGS.items()),
        form=Form(visit.query),
        picture=svg_map.picture(svg_map.around([(x, y), *points]), pins[::-1]),
    )


# --- by coordinates ------------------------------------------------------------------------------


@views.get("/coordinates")
def coordinates(visit: Visit) -> Response:
    """What is where: the nearest address and the nearest places."""
    form = Form(visit.query)
    if not visit.query:
        return visit.page(
            "coordinates.html.j2", form=form, picture=svg_map.picture(svg_map.region())
        )
    latitude = _degrees(form, "lat", 46.8, 47.6)
    longitude = _degrees(form, "lon", -39.2, -38.0)
    if form.errors:
        picture = svg_map.picture(svg_map.region())
        return visit.page("coordinates.html.j2", 422, form=form, picture=picture)
    point = metres(latitude, longitude)
    edge, _, away = network().nearest(point)
    zip_code = visit.value("SELECT zip_code FROM town WHERE name = ?", edge.town)
    x, y = point
    near = visit.rows(f"SELECT {ROW} {_FROM} listed ORDER BY {_AWAY}, place.id LIMIT 5", x, x, y, y)
    pins = [*(Pin((row["x"], row["y"]), str(i)) for i, row in enumerate(near, 1)), Pin(point)]
    return visit.page(
        "coordinates.html.j2",
        form=form,
        street=edge.name,
        town=edge.town,
        zip_code=zip_code,
        away=away,
        near=near,
        distances=[between(point, (row["x"], row["y"])) for row in near],
        picture=svg_map.picture(svg_map.around([pin.at for pin in pins]), pins[::-1]),
    )


def _degrees(form: Form, name: str, least: float, most: float) -> float:
    text = form.text(name)
    if name in form.errors:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        form.errors[name] = "Enter degrees as a number, such as 47.2015."
        return 0.0
    if not least <= value <= most:
        form.errors[name] = f"The map goes from {least} to {most}."
    return value
