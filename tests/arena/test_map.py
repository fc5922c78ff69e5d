"""The map over HTTP, its roads, and its tasks."""

from __future__ import annotations

import re

import pytest

from tests.arena.conftest import Visitor
from webagent_jax.arena import database
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.map.data import DATABASE, parse_week
from webagent_jax.arena.map.network import MODES, SPEEDS
from webagent_jax.arena.map.places import format_hours
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.routes import Spot, find_route, format_distance, format_duration
from webagent_jax.arena.map.terrain import to_degrees, to_point
from webagent_jax.arena.task import Data


@pytest.fixture
def atlas(host: ArenaServerHandle, world: str) -> Visitor:
    return Visitor(host, world, "map")


@pytest.fixture(scope="session")
def some(data: Data):
    """Places of the same town, and of another."""
    rows = data["map"].execute("SELECT * FROM place WHERE id > 18 ORDER BY id").fetchall()
    first = rows[0]
    near = next(row for row in rows[1:] if row["town"] == first["town"])
    far = next(row for row in rows if row["town"] != first["town"])
    return first, near, far


def test_two_builds_are_the_same_bytes() -> None:
    assert database.build_image(DATABASE) == database.build_image(DATABASE)


# --- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/browse/food-drink",
        "/category/cafes",
        "/search?q=museum",
        "/town/saltmarsh",
        "/directions",
        "/coordinates",
        "/lists",
        "/lists/1",
        "/saved/1",
        "/reports",
        "/sign-in",
        "/coordinates?lat=47.2&lon=-38.6",
        "/route/car/dunmore/fairhaven",
        "/place/dunmore/nearby",
    ],
)
def test_every_page_answers_and_has_a_picture(atlas: Visitor, path: str) -> None:
    page = atlas.get(path)
    assert page.status == 200 and "<h1" in page.text and '<svg class="map"' in page.text


@pytest.mark.parametrize(
    "path", ["/nothing", "/place/none", "/lists/99", "/route/boat/dunmore/fairhaven", "/browse/x"]
)
def test_what_is_not_there_is_told_in_the_layout_of_the_map(atlas: Visitor, path: str) -> None:
    page = atlas.get(path)
    assert page.status == 404 and "Cairn" in page.text


def test_search_finds_all_words_in_any_order_and_nothing_else(atlas: Visitor) -> None:
    assert "of 1 place" in atlas.get("/search?q=hall+dunmore+town").text
    assert "No places found" in atlas.get("/search?q=dunmore+zebra").text
    assert atlas.get("/category/cafes?town=&open=now").location == "/category/cafes?open=now"


def test_nearby_places_are_in_the_order_of_their_distance(atlas: Visitor) -> None:
    page = atlas.get("/place/alder-falls/nearby?category=banks")
    told = re.findall(r": ([\d.]+) (k?m)</span>", page.text)
    far = [float(number) * (1000 if unit == "km" else 1) for number, unit in told]
    assert len(far) == 8 and far == sorted(far)


def test_coordinates_lead_to_the_place_they_are_from(atlas: Visitor, some) -> None:
    latitude, longitude = to_degrees((some[0]["x"], some[0]["y"]))
    assert some[0]["town"] in atlas.get(f"/coordinates?lat={latitude}&lon={longitude}").text
    x, y = to_point(latitude, longitude)
    assert abs(x - some[0]["x"]) < 12 and abs(y - some[0]["y"]) < 12
    wrong = atlas.get("/coordinates?lat=north&lon=900")
    assert wrong.status == 422 and len(wrong.errors) == 2


def test_directions_want_both_ends_to_be_clear(atlas: Visitor) -> None:
    good = atlas.get("/directions?from=dunmore&to=161+Ashgrove+Road,+Port+Hadley&by=foot")
    assert good.location == "/route/foot/dunmore/161-ashgrove-road-port-hadley"
    vague = atlas.get("/directions?from=museum&to=nowhere&by=car")
    assert vague.status == 422 and len(vague.errors) == 2 and "Museum" in vague.text
    same = atlas.get("/directions?from=Dunmore&to=dunmore&by=car")
    assert same.errors == ["You are there already: both ends are the same place."]


def test_what_is_saved_is_seen_in_its_own_world_alone(
    host: ArenaServerHandle, atlas: Visitor, some
) -> None:
    other = Visitor(host, host.new(), "map")
    assert "was created" in atlas.post("/lists", name="Visitors").text
    assert atlas.post("/lists", name="visitors").errors
    assert "was saved" in atlas.post(f"/place/{some[0]['slug']}/save", list=5).text
    assert some[0]["name"].replace("&", "&amp;") in atlas.get("/lists/5").text
    assert other.get("/lists/5").status == 404
    assert "renamed" in atlas.post("/lists/5/rename", name="Guests").text
    assert "was deleted" in atlas.post("/lists/5/delete").text


def test_notes_and_reports(atlas: Visitor, some) -> None:
    assert "Two &lt;b&gt;" in atlas.post("/saved/1", note="Two <b>").text
    assert atlas.post("/saved/1", note="x" * 201).status == 422
    path = f"/place/{some[0]['slug']}/report"
    assert len(atlas.post(path, problem="", body="short").errors) == 2
    assert "was sent" in atlas.post(path, problem="Closed for good", body="Nobody is here.").text
    assert "Closed for good" in atlas.get(f"/place/{some[0]['slug']}").text


def test_lists_are_for_those_who_are_signed_in(atlas: Visitor, some) -> None:
    atlas.post("/sign-out")
    assert atlas.get("/lists").location == "/sign-in?back=%2Flists"
    assert "Sign in" in atlas.post(f"/place/{some[0]['slug']}/save", list=1).text
    assert atlas.post("/saved/1/remove").status == 404


# --- roads ---------------------------------------------------------------------------------------


def _spot(row) -> Spot:
    return Spot(row["edge"], row["along"])


@pytest.mark.parametrize("mode", MODES)
def test_a_route_is_made_of_what_may_be_gone(some, mode) -> None:
    for end in some[1:]:
        found = find_route(_spot(some[0]), _spot(end), mode)
        assert sum(step.meters for step in found.steps) == found.meters
        allowed = {edge.name for edge in network().edges if mode in SPEEDS[edge.kind]}
        assert {step.road for step in found.steps} <= allowed
        fastest = max(speeds.get(mode, 0) for speeds in SPEEDS.values()) / 3.6
        assert found.seconds >= found.meters / fastest
        straight = ((some[0]["x"] - end["x"]) ** 2 + (some[0]["y"] - end["y"]) ** 2) ** 0.5
        assert found.meters >= straight - 5


def test_the_quickest_way_is_no_slower_than_one_through_a_third_place(some) -> None:
    first, near, far = map(_spot, some)
    direct = find_route(first, far, "car").seconds
    assert (
        direct <= find_route(first, near, "car").seconds + find_route(near, far, "car").seconds + 40
    )
    assert find_route(first, near, "foot").seconds > find_route(first, near, "bike").seconds


def test_every_place_can_be_reached(data: Data) -> None:
    edges = {edge for (edge,) in data["map"].execute("SELECT DISTINCT edge FROM place")}
    assert edges <= network().open_edge_ids


# --- how things are written ----------------------------------------------------------------------


def test_hours_distances_and_times() -> None:
    days = parse_week("Tu-Sa 09:00-17:00")
    assert format_hours(";".join(days)) == ["Mon closed", "Tue-Sat 09:00-17:00", "Sun closed"]
    assert parse_week("We-Mo 17:00-23:00")[1] == "" and parse_week("We-Mo 17:00-23:00")[0]
    assert format_hours(";".join(parse_week("24/7"))) == ["Open 24 hours"]
    assert format_distance(847) == "850 m" and format_distance(12_449) == "12.4 km"
    assert format_duration(59) == "59 min" and format_duration(84) == "1 h 24 min"
