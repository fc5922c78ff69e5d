"""Tasks of the back office."""

from __future__ import annotations

from webagent_jax.arena.admin.tasks import (
    customer_edits,
    customer_questions,
    order_lists,
    order_processing,
    orders,
    products,
    promotions,
    report_questions,
    reports,
    reviews,
    stock,
)
from webagent_jax.arena.task import TaskTemplate

TEMPLATES: tuple[TaskTemplate, ...] = (
    *reports.tasks,
    *report_questions.tasks,
    *orders.tasks,
    *order_lists.tasks,
    *customer_questions.tasks,
    *customer_edits.tasks,
    *reviews.tasks,
    *order_processing.tasks,
    *products.tasks,
    *stock.tasks,
    *promotions.tasks,
)
