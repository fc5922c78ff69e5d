"""What there is to do on the map."""

from __future__ import annotations

from webagent_jax.suites.arena.map.tasks import across, around, facts, keeping, travel
from webagent_jax.suites.arena.task import Template

TEMPLATES: tuple[Template, ...] = (
    *facts.tasks,
    *around.tasks,
    *travel.tasks,
    *keeping.tasks,
    *across.tasks,
)
