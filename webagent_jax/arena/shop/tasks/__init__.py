"""Tasks of the shop."""

from __future__ import annotations

from webagent_jax.arena.shop.tasks import (
    account,
    category_questions,
    checkout,
    order_history,
    orders,
    product_lists,
    products,
    reviews_and_contact,
    wishlist,
)
from webagent_jax.arena.task import TaskTemplate

TEMPLATES: tuple[TaskTemplate, ...] = (
    *orders.tasks,
    *order_history.tasks,
    *products.tasks,
    *category_questions.tasks,
    *product_lists.tasks,
    *checkout.tasks,
    *wishlist.tasks,
    *reviews_and_contact.tasks,
    *account.tasks,
)
