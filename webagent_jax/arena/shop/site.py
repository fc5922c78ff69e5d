"""Site of Marigold, a department store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webagent_jax.arena import common
from webagent_jax.arena.shop import account, cart, catalog, help_desk
from webagent_jax.arena.shop.data import DATABASE
from webagent_jax.arena.site import RequestContext, Site


def _template_context(request: RequestContext) -> Mapping[str, Any]:
    pieces = request.value(
        "SELECT coalesce(sum(quantity), 0) FROM cart_item JOIN product ON product.id = product_id"
        " WHERE customer_id = ? AND active",
        cart.customer_id(request),
    )
    departments = request.rows("SELECT name, slug FROM department ORDER BY id")
    return {"pieces": pieces, "departments": departments}


def format_rating(total: int, count: int) -> str:
    """Return the average rating: 18 stars in 4 reviews give 4.5."""
    return f"{total / count:.1f}" if count else ""


SITE = Site(
    name="shop",
    task_name="shopping",
    title="Marigold",
    description="A department store: 2,000 products, reviews, cart and checkout, orders, wish list",
    database=DATABASE,
    views=[catalog.views, cart.views, account.views, help_desk.views],
    folder=Path(__file__).parent,
    account_id=common.agent_user().id,
    template_context=_template_context,
    filters={"stars": format_rating},
)
