"""The back office of Marigold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webagent_jax.arena import common
from webagent_jax.arena.admin import (
    customers,
    dashboard,
    orders,
    products,
    promotions,
    reports,
    reviews,
)
from webagent_jax.arena.admin.data import DATABASE
from webagent_jax.arena.admin.staff_views import author
from webagent_jax.arena.site import Site, Visit

_TOPICS = (dashboard, orders, products, customers, reviews, promotions, reports)


def _everywhere(visit: Visit) -> Mapping[str, Any]:
    return {"staff": author(visit) if visit.session.account else ""}


SITE = Site(
    name="admin",
    task_name="shopping_admin",
    title="Marigold Back Office",
    about="Behind the shop: orders, stock, customers, reviews, promotions and reports",
    database=DATABASE,
    views=[dashboard.door, *(topic.views for topic in _TOPICS)],
    folder=Path(__file__).parent,
    account=common.me().id,
    everywhere=_everywhere,
    filters={"interval": reports.interval},
)
