"""Task templates of the map."""

from __future__ import annotations

from webagent_jax.arena.map.tasks import cross_site, directions, nearby, place_details, saved_lists
from webagent_jax.arena.task import TaskTemplate

TEMPLATES: tuple[TaskTemplate, ...] = (
    *place_details.tasks,
    *nearby.tasks,
    *directions.tasks,
    *saved_lists.tasks,
    *cross_site.tasks,
)
