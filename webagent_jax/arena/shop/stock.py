"""Stock of the products of canceled and refunded orders; the back office changes it too."""

from __future__ import annotations

from webagent_jax.arena.site import RequestContext

_QUANTITY_SQL = (
    "(SELECT sum(quantity) FROM purchase_item WHERE product_id = product.id AND purchase_id = ?)"
)
_WHERE_IN_ORDER = "WHERE id IN (SELECT product_id FROM purchase_item WHERE purchase_id = ?)"


def restock(request: RequestContext, number: int) -> None:
    """Add the products of an order to the stock; they still count as sold."""
    request.execute(
        f"UPDATE product SET stock = stock + {_QUANTITY_SQL} {_WHERE_IN_ORDER}", number, number
    )


def return_products(request: RequestContext, number: int) -> None:
    """Add the products of a canceled order to the stock; they no longer count as sold."""
    restock(request, number)
    request.execute(
        f"UPDATE product SET sold = max(sold - {_QUANTITY_SQL}, 0) {_WHERE_IN_ORDER}",
        number,
        number,
    )
