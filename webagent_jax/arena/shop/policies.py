"""Terms of the shop: deliveries, payments and coupons."""

from __future__ import annotations

DELIVERIES = {"Standard": 495, "Express": 1295, "Pick-up point": 295}
STATUSES = (  # statuses of an order
    "Pending",
    "Processing",
    "On Hold",
    "Shipped",
    "Complete",
    "Cancelled",
    "Refunded",
)
PAYMENTS = ("Credit card", "Bank transfer", "Cash on delivery")
FREE_STANDARD_MIN_CENTS = 7_500  # order value in cents from which standard delivery is free
PROMOTIONS = (
    ("WELCOME5", "Welcome to Marigold", 5, 0, "2022-01-01", "2023-12-31", 1),
    ("SPRING10", "Spring sale", 10, 5_000, "2023-03-01", "2023-06-30", 1),
    ("GARDEN15", "Garden weeks", 15, 8_000, "2023-05-01", "2023-06-30", 1),
    ("WINTER20", "Winter clearance", 20, 10_000, "2023-01-02", "2023-02-28", 0),
    ("HOLIDAY10", "Holiday season", 10, 4_000, "2022-11-25", "2022-12-31", 0),
    ("SUMMER12", "Summer days", 12, 6_000, "2022-06-01", "2022-08-31", 0),
)


def shipping_cost(delivery: str, amount: int) -> int:
    """Return the shipping cost of an order worth `amount`, both in cents."""
    is_free = delivery == "Standard" and amount >= FREE_STANDARD_MIN_CENTS
    return 0 if is_free else DELIVERIES[delivery]
