"""Data of the shop and of its back office, which is drawn after that of the shop."""

from __future__ import annotations

import datetime
import sqlite3
from pathlib import Path

from webagent_jax.arena import common, random_data
from webagent_jax.arena.common import TODAY
from webagent_jax.arena.database import Database
from webagent_jax.arena.shop.data import DATABASE as SHOP

CARRIERS = {"Parcelway": "PW", "Northline": "NL", "Swift Post": "SP", "Bluebird Freight": "BF"}
"""Carriers of parcels, and the prefixes of their tracking numbers."""

REFUND_REASONS = (
    "Damaged in transit",
    "Wrong item sent",
    "Does not fit",
    "Arrived too late",
    "Changed their mind",
    "Not as described",
)

# Besides those of the shop: (code, name, percent, minimum in cents, first day, last day, active)
PROMOTIONS = (
    ("KITCHEN8", "Kitchen weekend", 8, 3_000, "2022-03-04", "2022-03-07", 0),
    ("SCHOOL10", "Back to school", 10, 2_500, "2022-08-15", "2022-09-15", 0),
    ("PICNIC7", "Picnic season", 7, 2_000, "2023-05-15", "2023-07-31", 1),
    ("TEATIME5", "Tea and coffee days", 5, 1_500, "2023-04-01", "2023-09-30", 1),
    ("BIKES12", "Ride to work", 12, 9_000, "2023-06-01", "2023-06-30", 1),
    ("PLAY15", "Toys and games week", 15, 4_000, "2023-07-10", "2023-07-16", 1),
    ("HARVEST10", "Harvest festival", 10, 5_000, "2023-09-15", "2023-10-15", 1),
    ("CABLES20", "Cable clearance", 20, 1_000, "2022-10-01", "2022-10-31", 0),
)


def fill(connection: sqlite3.Connection) -> None:
    SHOP.fill(connection)
    _fill_promotions(connection)
    _fill_shipments(connection)
    _fill_refunds(connection)
    _fill_remarks(connection)
    _fill_notes(connection)
    _fill_search_terms(connection)


def _fill_promotions(connection: sqlite3.Connection) -> None:
    connection.executemany(
        "INSERT INTO promotion (code, name, percent, minimum, starts, ends, active)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        PROMOTIONS,
    )


def _fill_shipments(connection: sqlite3.Connection) -> None:
    """Insert the shipments of all shipped orders."""
    rng = random_data.random_stream("admin", "shipments")
    rows = []
    sql = "SELECT id, placed FROM purchase WHERE status IN ('Shipped', 'Complete', 'Refunded')"
    for number, order_time in connection.execute(sql).fetchall():
        carrier = rng.choices(tuple(CARRIERS), (50, 25, 15, 10))[0]
        ship_date = datetime.date.fromisoformat(order_time[:10]) + datetime.timedelta(
            rng.randint(1, 3)
        )
        tracking = f"{CARRIERS[carrier]}{rng.randint(10_000_000, 99_999_999)}"
        rows.append((number, carrier, tracking, min(ship_date, TODAY).isoformat()))
    connection.executemany("INSERT INTO shipment VALUES (?, ?, ?, ?)", rows)


def _fill_refunds(connection: sqlite3.Connection) -> None:
    rng = random_data.random_stream("admin", "refunds")
    rows = []
    sql = "SELECT id, placed, total, shipping FROM purchase WHERE status = 'Refunded'"
    for number, order_time, total, shipping in connection.execute(sql).fetchall():
        refund_date = datetime.date.fromisoformat(order_time[:10]) + datetime.timedelta(
            rng.randint(5, 20)
        )
        amount = total if rng.random() < 0.7 else total - shipping
        reason = rng.choice(REFUND_REASONS)
        rows.append((number, amount, reason, min(refund_date, TODAY).isoformat()))
    connection.executemany("INSERT INTO refund VALUES (?, ?, ?, ?)", rows)


def _fill_remarks(connection: sqlite3.Connection) -> None:
    rng = random_data.random_stream("admin", "remarks")
    bodies = random_data.read_lines("admin_remarks")
    rows = []
    for number, order_time in connection.execute("SELECT id, placed FROM purchase").fetchall():
        if rng.random() < 0.12:
            remark = (rng.choice(bodies), int(rng.random() < 0.3))
            rows.append((number, order_time[:10] + " 17:30:00", common.agent_user().name, *remark))
    connection.executemany(
        "INSERT INTO remark (purchase_id, written, author, body, notified) VALUES (?, ?, ?, ?, ?)",
        rows,
    )


def _fill_notes(connection: sqlite3.Connection) -> None:
    rng = random_data.random_stream("admin", "notes")
    bodies = random_data.read_lines("admin_customer_notes")
    customers = [number for (number,) in connection.execute("SELECT id FROM customer WHERE id > 1")]
    rows = [(number, rng.choice(bodies)) for number in sorted(rng.sample(customers, 120))]
    connection.executemany("INSERT INTO customer_note VALUES (?, ?)", rows)


def _fill_search_terms(connection: sqlite3.Connection) -> None:
    """Insert the search terms: product kinds or their last words, and some without results."""
    rng = random_data.random_stream("admin", "search terms")
    kinds = [kind.lower() for (kind,) in connection.execute("SELECT DISTINCT kind FROM product")]
    terms = list(dict.fromkeys([*kinds, *(kind.split()[-1] for kind in kinds)]))
    terms = [*rng.sample(sorted(terms), 110), "gift card", "piano", "mattress", "aquarium"]
    sampler = random_data.ZipfSampler(rng, terms, exponent=1.0)
    searches = sampler.sample(rng, 6_000)
    rows = []
    for term in terms:
        condition = " AND ".join(f"instr(words, '{word}')" for word in term.split())
        (results,) = connection.execute(
            f"SELECT count(*) FROM product WHERE {condition}"
        ).fetchone()
        last_use = TODAY - datetime.timedelta(rng.randint(0, 40))
        rows.append((term, searches.count(term) + 1, results, last_use.isoformat()))
    connection.executemany(
        "INSERT INTO search_term (term, uses, results, last) VALUES (?, ?, ?, ?)", rows
    )


DATABASE = Database(
    name=SHOP.name,
    schema=SHOP.schema + (Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    fill=fill,
)
"""Database of both sites; it replaces the shop's own."""
