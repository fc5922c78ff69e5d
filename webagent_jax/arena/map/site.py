"""Site definition of Cairn, the map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webagent_jax.arena import common
from webagent_jax.arena.map import directions, places, saved_lists
from webagent_jax.arena.map.data import DATABASE
from webagent_jax.arena.map.routes import format_distance, format_duration
from webagent_jax.arena.site import RequestContext, Site

_SECTIONS = (
    "Food & Drink",
    "Shopping",
    "Health",
    "Culture",
    "Outdoors",
    "Sleeping",
    "Transport",
    "Services",
)


def _template_context(request: RequestContext) -> Mapping[str, Any]:
    return {"sections": [(name, name.lower().replace(" & ", "-")) for name in _SECTIONS]}


SITE = Site(
    name="map",
    task_name="map",
    title="Cairn",
    description=(
        "A map: 2,000 places in 16 towns, directions by car, by bike and on foot, saved lists"
    ),
    database=DATABASE,
    views=[places.views, directions.views, saved_lists.views],
    folder=Path(__file__).parent,
    account_id=common.agent_user().id,
    template_context=_template_context,
    filters={"distance": format_distance, "duration": format_duration},
)
