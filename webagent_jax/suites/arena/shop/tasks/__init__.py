"""What there is to do in the shop."""

from __future__ import annotations

from webagent_jax.suites.arena.shop.tasks import (
    account,
    buying,
    history,
    lists,
    orders,
    products,
    ranges,
    wishing,
    writing,
)
from webagent_jax.suites.arena.task import Template

TEMPLATES: tuple[Template, ...] = (
    *orders.tasks,
    *history.tasks,
    *products.tasks,
    *ranges.tasks,
    *lists.tasks,
    *buying.tasks,
    *wishing.tasks,
    *writing.tasks,
    *account.tasks,
)
