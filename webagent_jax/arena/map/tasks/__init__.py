"""What there is to do on the map."""

from __future__ import annotations

from webagent_jax.arena.map.tasks import cross_site, directions, nearby, place_details, saved_lists
from webagent_jax.arena.task import Template

TEMPLATES: tuple[Template, ...] = (
    *place_details.tasks,
    *nearby.tasks,
    *directions.tasks,
    *saved_lists.tasks,
    *cross_site.tasks,
)
