"""What there is to do on the code host."""

from __future__ import annotations

from webagent_jax.suites.arena.code.tasks import (
    across,
    finding,
    issues,
    merging,
    projects,
    reading,
    records,
    teams,
)
from webagent_jax.suites.arena.task import Template

TEMPLATES: tuple[Template, ...] = (
    *reading.tasks,
    *records.tasks,
    *finding.tasks,
    *issues.tasks,
    *merging.tasks,
    *teams.tasks,
    *projects.tasks,
    *across.tasks,
)
