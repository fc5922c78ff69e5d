"""Task templates of the forum."""

from __future__ import annotations

from webagent_jax.arena.forum.tasks import (
    comments_and_messages,
    communities,
    cross_site,
    posts,
    questions,
    voting,
)
from webagent_jax.arena.task import TaskTemplate

TEMPLATES: tuple[TaskTemplate, ...] = (
    *posts.tasks,
    *comments_and_messages.tasks,
    *voting.tasks,
    *communities.tasks,
    *questions.tasks,
    *cross_site.tasks,
)
