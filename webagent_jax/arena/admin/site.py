"""Site of Marigold's back office."""

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
from webagent_jax.arena.admin.staff_views import staff_name
from webagent_jax.arena.site import RequestContext, Site

_TOPICS = (dashboard, orders, products, customers, reviews, promotions, reports)


def _template_context(request: RequestContext) -> Mapping[str, Any]:
    return {"staff": staff_name(request) if request.session.account_id else ""}


SITE = Site(
    name="admin",
    task_name="shopping_admin",
    title="Marigold Back Office",
    description="Behind the shop: orders, stock, customers, reviews, promotions and reports",
    database=DATABASE,
    views=[dashboard.public_views, *(topic.views for topic in _TOPICS)],
    folder=Path(__file__).parent,
    account_id=common.agent_user().id,
    template_context=_template_context,
    filters={"interval": reports.format_interval},
)
