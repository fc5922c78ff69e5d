"""What there is to do in the back office."""

from __future__ import annotations

from webagent_jax.suites.arena.admin.tasks import (
    accounts,
    catalogue,
    figures,
    handling,
    lists,
    orders,
    people,
    promotions,
    reports,
    reviews,
    stock,
)
from webagent_jax.suites.arena.task import Template

TEMPLATES: tuple[Template, ...] = (
    *reports.tasks,
    *figures.tasks,
    *orders.tasks,
    *lists.tasks,
    *people.tasks,
    *accounts.tasks,
    *reviews.tasks,
    *handling.tasks,
    *catalogue.tasks,
    *stock.tasks,
    *promotions.tasks,
)
