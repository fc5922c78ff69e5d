"""Tests of the map site: pages, routes and formats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.arena.conftest import SiteClient
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.map import site as map_site
from webagent_jax.arena.map.data import parse_week
from webagent_jax.arena.map.network import MODES, SPEEDS
from webagent_jax.arena.map.places import format_hours
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.routes import Spot, find_route, format_distance, format_duration
from webagent_jax.arena.map.terrain import to_degrees, to_point
from webagent_jax.arena.task import Data


@pytest.fixture
def atlas(server: ArenaServerHandle, world: str) -> SiteClient:
    return SiteClient(server, world, "map")


@pytest.fixture(scope="session")
def places(data: Data):
    """Return two places of one town and one place of another town."""
    rows = data["map"].execute("SELECT * FROM place WHERE id > 18 ORDER BY id").fetchall()
    first = rows[0]
    near = next(row for row in rows[1:] if row["town"] == first["town"])
    far = next(row for row in rows if row["town"] != first["town"])
    return first, near, far


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
def test_pages_return_200_with_map(atlas: SiteClient, path: str) -> None:
    page = atlas.get(path)
    assert page.status == 200 and "<h1" in page.text and '<svg class="map"' in page.text


@pytest.mark.parametrize(
    "path", ["/nothing", "/place/none", "/lists/99", "/route/boat/dunmore/fairhaven", "/browse/x"]
)
def test_missing_pages_return_404(atlas: SiteClient, path: str) -> None:
    page = atlas.get(path)
    assert page.status == 404 and "Cairn" in page.text


def test_search_matches_all_words_in_any_order(atlas: SiteClient) -> None:
    assert "of 1 place" in atlas.get("/search?q=hall+dunmore+town").text
    assert "No places found" in atlas.get("/search?q=dunmore+zebra").text
    assert atlas.get("/category/cafes?town=&open=now").location == "/category/cafes?open=now"


def test_search_accepts_any_characters(atlas: SiteClient) -> None:
    assert "No places found" in atlas.get("/search?q=%00").text
    assert atlas.get("/search?q=%27").status == 200
    first = re.findall(r'href="/place/([^"]+)"', atlas.get("/search?q=dunmore").text)[0]
    assert first == "dunmore"


def test_nearby_places_are_sorted_by_distance(atlas: SiteClient) -> None:
    page = atlas.get("/place/alder-falls/nearby?category=banks")
    matches = re.findall(r": ([\d.]+) (k?m)</span>", page.text)
    distances = [float(number) * (1000 if unit == "km" else 1) for number, unit in matches]
    assert len(distances) == 8 and distances == sorted(distances)


def test_coordinates_round_trip_to_place(atlas: SiteClient, places) -> None:
    latitude, longitude = to_degrees((places[0]["x"], places[0]["y"]))
    assert places[0]["town"] in atlas.get(f"/coordinates?lat={latitude}&lon={longitude}").text
    x, y = to_point(latitude, longitude)
    assert abs(x - places[0]["x"]) < 12 and abs(y - places[0]["y"]) < 12
    error_page = atlas.get("/coordinates?lat=north&lon=900")
    assert error_page.status == 422 and len(error_page.errors) == 2


def test_directions_require_unambiguous_endpoints(atlas: SiteClient) -> None:
    route_page = atlas.get("/directions?from=dunmore&to=161+Ashgrove+Road,+Port+Hadley&by=foot")
    assert route_page.location == "/route/foot/dunmore/161-ashgrove-road-port-hadley"
    error_page = atlas.get("/directions?from=museum&to=nowhere&by=car")
    assert error_page.status == 422 and len(error_page.errors) == 2 and "Museum" in error_page.text
    same_place_page = atlas.get("/directions?from=Dunmore&to=dunmore&by=car")
    assert same_place_page.errors == ["You are there already: both ends are the same place."]


def test_saved_lists_stay_in_world(server: ArenaServerHandle, atlas: SiteClient, places) -> None:
    other_client = SiteClient(server, server.new(), "map")
    assert "was created" in atlas.post("/lists", name="Visitors").text
    assert atlas.post("/lists", name="visitors").errors
    assert "was saved" in atlas.post(f"/place/{places[0]['slug']}/save", list=5).text
    assert places[0]["name"].replace("&", "&amp;") in atlas.get("/lists/5").text
    assert other_client.get("/lists/5").status == 404
    assert "renamed" in atlas.post("/lists/5/rename", name="Guests").text
    assert "was deleted" in atlas.post("/lists/5/delete").text


def test_notes_and_reports_are_validated_and_stored(atlas: SiteClient, places) -> None:
    assert "Two &lt;b&gt;" in atlas.post("/saved/1", note="Two <b>").text
    assert atlas.post("/saved/1", note="x" * 201).status == 422
    path = f"/place/{places[0]['slug']}/report"
    assert len(atlas.post(path, problem="", body="short").errors) == 2
    assert "was sent" in atlas.post(path, problem="Closed for good", body="Nobody is here.").text
    assert "Closed for good" in atlas.get(f"/place/{places[0]['slug']}").text


def test_saved_lists_require_sign_in(atlas: SiteClient, places) -> None:
    atlas.post("/sign-out")
    assert atlas.get("/lists").location == "/sign-in?back=%2Flists"
    assert "Sign in" in atlas.post(f"/place/{places[0]['slug']}/save", list=1).text
    assert "Sign in" in atlas.post("/saved/1/remove").text
    assert atlas.get("/saved/1").location == "/sign-in?back=%2Fsaved%2F1"


def test_search_field_is_readable() -> None:
    """Its background is bright, while the header has a bright color of text."""
    style = (Path(map_site.__file__).parent / "style.css").read_text()
    assert re.search(r"\.search input \{[^}]*[ ;]color:", style)


# --- roads ---------------------------------------------------------------------------------------


def _to_spot(row) -> Spot:
    return Spot(row["edge"], row["along"])


@pytest.mark.parametrize("mode", MODES)
def test_route_uses_allowed_roads_at_feasible_speed(places, mode) -> None:
    for end in places[1:]:
        result = find_route(_to_spot(places[0]), _to_spot(end), mode)
        assert sum(step.meters for step in result.steps) == result.meters
        allowed_roads = {edge.name for edge in network().edges if mode in SPEEDS[edge.kind]}
        assert {step.road for step in result.steps} <= allowed_roads
        max_speed = max(speeds.get(mode, 0) for speeds in SPEEDS.values()) / 3.6
        assert result.seconds >= result.meters / max_speed
        straight_meters = (
            (places[0]["x"] - end["x"]) ** 2 + (places[0]["y"] - end["y"]) ** 2
        ) ** 0.5
        assert result.meters >= straight_meters - 5


def test_route_durations_satisfy_triangle_inequality(places) -> None:
    first, near, far = map(_to_spot, places)
    direct_seconds = find_route(first, far, "car").seconds
    assert (
        direct_seconds
        <= find_route(first, near, "car").seconds + find_route(near, far, "car").seconds + 40
    )
    assert find_route(first, near, "foot").seconds > find_route(first, near, "bike").seconds


def test_places_are_on_reachable_edges(data: Data) -> None:
    edges = {edge for (edge,) in data["map"].execute("SELECT DISTINCT edge FROM place")}
    assert edges <= network().open_edge_ids


# --- formats -------------------------------------------------------------------------------------


def test_hours_distances_and_durations_are_formatted() -> None:
    days = parse_week("Tu-Sa 09:00-17:00")
    assert format_hours(";".join(days)) == ["Mon closed", "Tue-Sat 09:00-17:00", "Sun closed"]
    assert parse_week("We-Mo 17:00-23:00")[1] == "" and parse_week("We-Mo 17:00-23:00")[0]
    assert format_hours(";".join(parse_week("24/7"))) == ["Open 24 hours"]
    assert format_distance(847) == "850 m" and format_distance(12_449) == "12.4 km"
    assert format_duration(59) == "59 min" and format_duration(84) == "1 h 24 min"
