"""Content of the map: towns, categories, about 2,000 places, saved lists and reports."""

from __future__ import annotations

import random
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from webagent_jax.arena import common, random_data
from webagent_jax.arena.common import NOW, City
from webagent_jax.arena.database import Database, insert_rows
from webagent_jax.arena.map.network import Edge
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.site import to_slug

NUM_PEOPLE = 300  # number of accounts
AGENT_USER_ID = 1  # person id of the agent's account
DAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")

_RURAL_CATEGORIES = {"Viewpoint", "Campsite", "Picnic Area", "Airport"}
_CATEGORIES_ONCE_PER_TOWN = {"Market", "Railway Station", "Bus Station", "Town Hall"}
_PORTS = ("Port Hadley", "Linden Bay", "Saltmarsh")
_METERS_PER_PLOT = 14  # meters of road per pair of house numbers
_LISTS = {
    "Favourites": ("Cafe", "Bakery", "Bookshop", "Park", "Restaurant", "Cinema"),
    "Want to go": ("Museum", "Viewpoint", "Theatre", "Restaurant", "Gallery"),
    "Weekend trips": ("Campsite", "Picnic Area", "Viewpoint", "Museum", "Guest House"),
    "Errands": ("Pharmacy", "Hardware Store", "Post Office", "Dentist"),
}
_NOTES = {
    "Cafe": ("Ask for the table by the window", "Best flat white in town"),
    "Bakery": ("Rye bread on Thursdays", "Go before eight"),
    "Bookshop": ("Pick up the atlas", "They buy old books"),
    "Park": ("Meet Priya at the pond", "Good for a run"),
    "Restaurant": ("Book for six people", "Mother's birthday"),
    "Cinema": ("Bring the voucher", "Open air in July"),
    "Museum": ("Free on first Sundays", "See the clock room"),
    "Viewpoint": ("Be there at sunset", "Take the binoculars"),
    "Theatre": ("Tickets for the autumn", "Row five is best"),
    "Gallery": ("New show in July", "Ask about the blue print"),
    "Campsite": ("Site by the water", "Bring own firewood"),
    "Picnic Area": ("Shade under the oaks", "Room for ten"),
    "Guest House": ("Breakfast is included", "Quiet room at the back"),
    "Pharmacy": ("Prescription is ready", "Buy sun cream"),
    "Hardware Store": ("Return the drill", "Screws for the shelf"),
    "Post Office": ("Send the parcel to Emil", "Buy stamps"),
    "Dentist": ("Appointment on June 27", "Bring the x-ray"),
}
_PROBLEMS = (
    ("Wrong opening hours", "They close an hour earlier on Fridays now."),
    ("Wrong position", "The entrance is around the corner."),
    ("Wrong phone number", "The number is not in service."),
    ("Closed for good", "The windows are covered and the sign is gone."),
    ("Something else", "There is a ramp at the side door."),
)


# --- the word list -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Category:
    section: str
    name: str
    plural: str
    count: int
    phones: int  # percentage of places with a phone
    hours: list[str] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)


def categories() -> Iterator[Category]:
    """Yield the categories of data/map_places.txt in order."""
    section, current = "", None
    for line in random_data.read_lines("map_places"):
        if line.startswith("== "):
            if current:
                yield current
            name, plural, count, phones = line[3:].split(" | ")
            current = Category(section, name, plural, int(count), int(phones))
        elif line.startswith("= "):
            if current:
                yield current
            section, current = line[2:], None
        elif current and line.startswith("hours: "):
            current.hours.extend(line.removeprefix("hours: ").split("; "))
        elif current and line.startswith("- "):
            current.patterns.append(line[2:])
    if current:
        yield current


def _read_words(name: str) -> list[str]:
    """Return a word list from the top of data/map_places.txt."""
    line = next(
        line for line in random_data.read_lines("map_places") if line.startswith(f"{name}: ")
    )
    return line.removeprefix(f"{name}: ").split(", ")


def slug(name: str) -> str:
    return to_slug(name.replace("'", ""))


def parse_week(text: str) -> list[str]:
    """Return the hours of each day from Monday, "" if closed.

    `text` has the form "Mo-Fr 08:00-18:00, Sa 09:00-12:00" or "24/7".
    """
    days = [""] * 7
    if text == "24/7":
        return ["00:00-24:00"] * 7
    for part in text.split(", ") if text else ():
        span, hours = part.split(" ")
        first, _, last = span.replace("Daily", "Mo-Su").partition("-")
        start, end = DAYS.index(first), DAYS.index(last or first)
        for day in range(start, end + 1 if start <= end else end + 8):
            days[day % 7] = hours
    return days


def is_open(hours: str, time: str) -> bool:
    """Return whether a time such as "10:00" is within hours such as "09:00-18:00"."""
    start, _, end = hours.partition("-")
    return bool(hours) and start <= time < end


# --- the tables ----------------------------------------------------------------------------------


def fill(connection: sqlite3.Connection) -> None:
    people = [(p.id, p.name, p.email, p.password) for p in common.persons()[:NUM_PEOPLE]]
    insert_rows(connection, "person", people)
    towns = [
        (i, c.name, slug(c.name), c.zip_code, c.population, round(c.x * 1000), round(c.y * 1000))
        for i, c in enumerate(common.cities(), 1)
    ]
    insert_rows(connection, "town", towns)
    kinds = [
        *categories(),
        Category("", "Town", "Towns", 0, 0),
        Category("", "Home", "Homes", 0, 0),
    ]
    rows = [
        (i, k.section, k.name, k.plural, slug(k.plural), int(bool(k.section)))
        for i, k in enumerate(kinds, 1)
    ]
    insert_rows(connection, "category", rows)
    insert_rows(connection, "place", _Places(kinds).rows)
    _fill_lists(connection)
    _fill_reports(connection)


class _Places:
    """Sampler of the places; all names are distinct."""

    def __init__(self, kinds: Sequence[Category]) -> None:
        self._rng = random_data.random_stream("map", "places")
        self._zips = {city.name: city.zip_code for city in common.cities()}
        self._kinds = {kind.name: i for i, kind in enumerate(kinds, 1)}
        self._plurals = {kind.name: kind.plural for kind in kinds}
        self._slugs: set[str] = set()
        self._adjectives, self._nouns = _read_words("adjectives"), _read_words("nouns")
        self._edges_inside, self._edges_outside = _building_edges()
        self._green_edges: dict[str, list[Edge]] = defaultdict(list)
        for _, edge in network().parks:
            if edge in network().open_edge_ids:
                self._green_edges[network().edges[edge].town].append(network().edges[edge])
        self.rows: list[tuple[object, ...]] = []
        for city in common.cities():
            self._add_town(city)
        self._add_house("161 Ashgrove Road", "Port Hadley")
        self._add_house("48 Library Street", "Port Hadley")
        for kind in kinds:
            for index in range(kind.count):
                self._add_place(kind, index)

    def _add_town(self, city: City) -> None:
        """Add the town itself, at the junction of its main streets."""
        node = network().center_nodes[city.name]
        edge = next(
            e for e in network().edges if e.id in network().open_edge_ids and node in (e.a, e.b)
        )
        offset = 0 if edge.a == node else edge.length
        self._add(city.name, "Town", edge, offset, hours="", street=edge.name)

    def _add_house(self, address: str, town: str) -> None:
        """Add a private house."""
        number, name = address.split(" ", 1)
        meters = int(number) // 2 * _METERS_PER_PLOT
        pieces = [edge for edge in self._edges_inside[town] if edge.name == name]
        edge = max((e for e in pieces if e.start <= meters), key=lambda e: e.start)
        offset = min(meters - edge.start, edge.length)
        self._add(f"{address}, {town}", "Home", edge, offset, hours="", street=address)

    def _add_place(self, kind: Category, index: int) -> None:
        rng = self._rng
        while True:  # until the name is new
            edge = self._sample_edge(kind, self._sample_town(kind, index))
            name = self._sample_name(kind, edge)
            if slug(name) not in self._slugs:
                break
        phone = rng.randrange(100) < kind.phones
        self._add(
            *(name, kind.name, edge, rng.randint(8, max(9, edge.length - 8))),
            hours=rng.choice(kind.hours) if kind.hours else "",
            phone=f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}" if phone else "",
        )

    def _sample_town(self, kind: Category, index: int) -> str:
        cities = common.cities()
        if kind.name in _CATEGORIES_ONCE_PER_TOWN:
            return cities[index].name
        if kind.name == "Ferry Terminal":
            return _PORTS[index]
        if kind.name == "Airport":
            return cities[0].name
        return self._rng.choices(cities, [city.population**0.72 for city in cities])[0].name

    def _sample_edge(self, kind: Category, town: str) -> Edge:
        """Sample the edge of a place; towns are dense in the center."""
        rng = self._rng
        if kind.name in _RURAL_CATEGORIES:
            return rng.choice(self._edges_outside[town])
        if kind.name == "Park" and self._green_edges[town]:
            return self._green_edges[town].pop()
        x, y = network().nodes[network().center_nodes[town]]
        candidates = rng.choices(self._edges_inside[town], k=2)
        return min(candidates, key=lambda e: (abs(e.line[0][0] - x) + abs(e.line[0][1] - y), e.id))

    def _sample_name(self, kind: Category, edge: Edge) -> str:
        rng = self._rng
        pattern = rng.choice(kind.patterns)
        if "{S}" in pattern and "Route" in edge.name:
            pattern = pattern.replace("{S}", "{L}")
        words = {
            "{L}": lambda: rng.choice(random_data.read_lines("last_names")),
            "{F}": lambda: rng.choice(random_data.read_lines("first_names")),
            "{A}": lambda: rng.choice(self._adjectives),
            "{N}": lambda: rng.choice(self._nouns),
            "{S}": lambda: edge.name,
            "{T}": lambda: edge.town,
        }
        return re.sub(r"\{.\}", lambda match: words[match[0]](), pattern)

    def _add(
        self,
        name: str,
        kind: str,
        edge: Edge,
        offset: int,
        *,
        hours: str,
        phone: str = "",
        street: str = "",
    ) -> None:
        rng = self._rng
        self._slugs.add(slug(name))
        street = street or f"{house_number(edge, offset, rng.randrange(2))} {edge.name}"
        zip_code = self._zips[edge.town]
        website = f"www.{slug(name)}.example" if phone and rng.random() < 0.7 else ""
        days = parse_week(hours)
        today = NOW.weekday()
        search_text = " ".join((name, kind, self._plurals[kind], street, edge.town, zip_code))
        x, y = network().point_at(edge, offset)
        self.rows.append(
            (
                *(len(self.rows) + 1, name, slug(name), self._kinds[kind]),
                *(street, edge.town, zip_code, phone, website),
                *(";".join(days) if any(days) else "", int(rng.random() < 0.6)),
                *(x, y, edge.id, offset),
                int(is_open(days[today], f"{NOW:%H:%M}")),
                *(int(bool(days[5])), int(bool(days[6])), search_text.lower()),
            )
        )


def house_number(edge: Edge, offset: int, side: int) -> int:
    """Return the house number at a distance along an edge.

    Even and odd numbers face each other; numbers on country roads are ten times as far apart.

    Args:
        edge: piece of a road.
        offset: meters from its beginning.
        side: side of the road, 0 for even numbers and 1 for odd ones.
    """
    plot = _METERS_PER_PLOT * 10 if edge.kind == "road" else _METERS_PER_PLOT
    return max(1, 2 * ((edge.start + offset) // plot) + side)


def _building_edges() -> tuple[dict[str, list[Edge]], dict[str, list[Edge]]]:
    """Return the open edges inside and outside of each town."""
    inner_edges: dict[str, list[Edge]] = defaultdict(list)
    outer_edges: dict[str, list[Edge]] = defaultdict(list)
    for edge in network().edges:
        if edge.id in network().open_edge_ids:
            (outer_edges if edge.kind == "road" else inner_edges)[edge.town].append(edge)
    return inner_edges, outer_edges


def _fill_lists(connection: sqlite3.Connection) -> None:
    """Insert the saved lists of the agent's account."""
    rng = random_data.random_stream("map", "lists")
    insert_rows(connection, "list", [(i, AGENT_USER_ID, name) for i, name in enumerate(_LISTS, 1)])
    rows: list[tuple[object, ...]] = []
    for number, kinds in enumerate(_LISTS.values(), 1):
        for kind in kinds:
            place_ids = _find_place_ids(connection, kind)
            place = rng.choice(place_ids)
            note = rng.choice(_NOTES[kind]) if rng.random() < 0.8 else ""
            date = f"2023-0{rng.randint(1, 5)}-{rng.randint(10, 28)}"
            rows.append((len(rows) + 1, number, place, note, date))
    insert_rows(connection, "saved", rows)


def _find_place_ids(connection: sqlite3.Connection, kind: str) -> list[int]:
    sql = (
        "SELECT place.id FROM place JOIN category ON category.id = category_id"
        " WHERE category.name = ? ORDER BY place.id"
    )
    return [number for (number,) in connection.execute(sql, [kind])]


def _fill_reports(connection: sqlite3.Connection) -> None:
    """Insert reports of others, and two of the agent's account."""
    rng: random.Random = random_data.random_stream("map", "reports")
    (max_place_id,) = connection.execute("SELECT max(id) FROM place").fetchone()
    rows: list[tuple[object, ...]] = []
    for number in range(1, 121):
        person = AGENT_USER_ID if number in (40, 97) else rng.randint(2, NUM_PEOPLE)
        problem, body = rng.choice(_PROBLEMS)
        day = f"2023-0{1 + number // 25}-{1 + number % 25:02d}"
        status = "Open" if number > 70 or rng.random() < 0.2 else "Settled"
        rows.append((number, person, rng.randint(19, max_place_id), problem, body, day, status))
    insert_rows(connection, "report", rows)


DATABASE = Database(
    name="map",
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    fill=fill,
)
