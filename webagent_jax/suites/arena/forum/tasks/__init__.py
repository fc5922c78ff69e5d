"""What there is to do in the forum."""

from __future__ import annotations

from webagent_jax.suites.arena.forum.tasks import (
    across,
    joining,
    posting,
    questions,
    talking,
    voting,
)
from webagent_jax.suites.arena.task import Template

TEMPLATES: tuple[Template, ...] = (
    *posting.tasks,
    *talking.tasks,
    *voting.tasks,
    *joining.tasks,
    *questions.tasks,
    *across.tasks,
)
