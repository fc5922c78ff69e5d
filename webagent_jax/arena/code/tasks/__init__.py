"""Task templates of the code host."""

from __future__ import annotations

from webagent_jax.arena.code.tasks import (
    cross_site,
    issue_questions,
    issues,
    members,
    merge_requests,
    navigation,
    projects,
    repository_questions,
)
from webagent_jax.arena.task import TaskTemplate

TEMPLATES: tuple[TaskTemplate, ...] = (
    *repository_questions.tasks,
    *issue_questions.tasks,
    *navigation.tasks,
    *issues.tasks,
    *merge_requests.tasks,
    *members.tasks,
    *projects.tasks,
    *cross_site.tasks,
)
