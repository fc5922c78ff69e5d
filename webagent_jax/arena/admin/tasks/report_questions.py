"""Questions about the reports on coupons, customers, stock and search terms."""

from __future__ import annotations

import random

from webagent_jax.arena.admin.staff_views import ROWS_PER_PAGE
from webagent_jax.arena.admin.tasks.helpers import (
    ADMIN,
    LONG_PERIODS,
    find_rows,
    first_and_last_day,
    go_to_report,
    period_condition,
    sample_month,
    submit_report_form,
)
from webagent_jax.arena.shop.tasks.helpers import dollar_formats
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    sample_row,
    url_equals,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    extract_text,
    finish,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")

_COUPON_FACTS = {"uses": ("count(*)", 1), "discounts": ("sum(discount)", 2)}


def _sample_coupon_use(data: Data, rng: random.Random) -> TaskInstance | None:
    period = rng.choice([sample_month(rng), rng.choice(LONG_PERIODS)])
    fact = rng.choice(list(_COUPON_FACTS))
    sql = (
        f"SELECT coupon, {_COUPON_FACTS[fact][0]} FROM purchase"
        f" WHERE status != 'Cancelled' AND coupon != '' AND {period_condition()} GROUP BY coupon"
    )
    row = sample_row(rng, data["shop"].execute(sql, first_and_last_day(period)).fetchall())
    if row is None:
        return None
    value = str(row[1]) if fact == "uses" else dollar_formats(row[1])
    question = (
        "How many orders used" if fact == "uses" else "How much discount in all was given with"
    )
    return TaskInstance(
        {"asked": question, "code": row[0], "period": period}, answer_includes(value)
    )


@tasks.add(
    "coupon-use",
    _sample_coupon_use,
    "{asked} the coupon {code} in {period}?",
    "{asked} coupon {code} during {period}? Leave out cancelled orders.",
    "{asked} the code {code} in {period}, according to the coupon report?",
    "Check the coupon {code} for {period}. {asked} it?",
    "I want to know about {code} in {period}: {asked} this coupon",
)
def coupon_use(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Coupons", "It tells how often each was used")
    page = yield from submit_report_form(page, first_and_last_day(slots["period"]))
    page, rows = yield from find_rows(page, rf"{slots['code']} (\d+) \$([\d,.]+)")
    is_count = slots["asked"].startswith("How many")
    text = rows[0][1] if is_count else f"${rows[0][2]}"
    yield from answer(text, evidence=slots["code"], reason="That is the row of the coupon")


def _sample_best_customer(data: Data, rng: random.Random) -> TaskInstance | None:
    period, criterion = (
        rng.choice([sample_month(rng), *LONG_PERIODS]),
        rng.choice(("spent", "ordered")),
    )
    value = "sum(total)" if criterion == "spent" else "count(*)"
    sql = (
        f"SELECT first || ' ' || last, {value} AS value FROM purchase"
        " JOIN customer ON customer.id = customer_id"
        f" WHERE status != 'Cancelled' AND {period_condition()} GROUP BY customer_id"
        " ORDER BY value DESC"
    )
    # The first page of the report.
    customer_rows = data["shop"].execute(sql, first_and_last_day(period)).fetchmany(ROWS_PER_PAGE)
    names = [name for name, _ in customer_rows]
    if customer_rows[0][1] == customer_rows[1][1]:
        return None
    phrase = "spent most" if criterion == "spent" else "placed most orders"
    spec = answer_includes(names[0], excluding=names)
    return TaskInstance({"did": phrase, "period": period}, spec)


@tasks.add(
    "best-customer",
    _sample_best_customer,
    "Which customer {did} in {period}?",
    "Who {did} in {period}? Give me the name of the customer.",
    "Find the customer who {did} in {period}.",
    "Tell me the name of the customer that {did} during {period}",
    "For a thank-you letter: who of our customers {did} in {period}?",
)
def best_customer(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Best Customers", "It ranks the customers of a time")
    if slots["did"] == "spent most":
        page = yield from select_option(page, "Sort by", "Total", intent_phrase=slots["did"])
    page = yield from submit_report_form(page, first_and_last_day(slots["period"]))
    name = extract_text(page, r"Total ([A-Z]\w+ [A-Z]\w+) \d+ \$")
    yield from answer(name, reason="The first row is the best")


def _sample_low_stock(data: Data, rng: random.Random) -> TaskInstance | None:
    limit = rng.randint(2, 60)
    sql = "SELECT count(*) FROM product WHERE stock < ?"
    (count,) = data["shop"].execute(sql, [limit]).fetchone()
    return TaskInstance({"below": str(limit)}, answer_includes(str(count)))


@tasks.add(
    "low-stock",
    _sample_low_stock,
    "How many products have fewer than {below} pieces in stock?",
    "Count the products of which we have fewer than {below} pieces left.",
    "Of how many products are fewer than {below} pieces in stock?",
    "Tell me the number of products with a stock below {below}",
    "I plan to reorder everything with fewer than {below} pieces. How many products are that?",
)
def low_stock(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Low Stock", "It lists what runs out")
    page = yield from type_text(page, "Fewer than", slots["below"])
    page = yield from click(page, "Show Report", "button", intent_phrase="")
    count = extract_text(page, r"of ([\d,]+) products?")
    yield from answer(count.replace(",", ""), evidence="The list", reason="The report counts them")


def _sample_show_low_stock(data: Data, rng: random.Random) -> TaskInstance | None:
    limit = str(rng.choice((3, 4, 5, 6, 7, 8, 12, 15, 20, 25, 30, 40, 50)))
    return TaskInstance({"below": limit}, url_equals(f"{ADMIN}/reports/low-stock?below={limit}"))


@tasks.add(
    "show-low-stock",
    _sample_show_low_stock,
    "Show me the products with fewer than {below} pieces in stock.",
    "Open the low stock report for everything below {below} pieces.",
    "List what we have fewer than {below} pieces of",
    "Bring up the report on low stock with {below} as the limit.",
    "I want to see which products have fewer than {below} pieces left. Leave the list open.",
)
def show_low_stock(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Low Stock", "It lists what runs out")
    page = yield from type_text(page, "Fewer than", slots["below"])
    yield from click(page, "Show Report", "button", intent_phrase="")
    yield from finish("The report is shown")


_TERM_ROW = r"([a-z][a-z -]*?) (\d+) (\d+) [A-Z][a-z]{2} \d+, \d{4}"
"""Pattern of a row in the report: term, uses, results."""


def _sample_search_term(data: Data, rng: random.Random) -> TaskInstance | None:
    place = rng.randint(1, 15)
    rows = data["shop"].execute("SELECT term, uses FROM search_term ORDER BY uses DESC").fetchall()
    if [row["uses"] for row in rows].count(rows[place - 1]["uses"]) > 1:
        return None
    # The two pages of the report that an agent opens for these places.
    terms = [row["term"] for row in rows[: 2 * ROWS_PER_PAGE]]
    spec = answer_includes(terms[place - 1], excluding=terms)
    return TaskInstance({"place": str(place)}, spec)


@tasks.add(
    "search-term",
    _sample_search_term,
    "Which search term is number {place} among those used most in our shop?",
    "What is number {place} in the list of the most used search terms?",
    "Tell me the search term on place {place} by number of uses.",
    "Visitors look for many things. Which term is on place {place} by uses?",
    "Order the search terms by uses: which one is number {place}",
)
def search_term(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Search Terms", "It tells what visitors look for")
    page, rows = yield from find_rows(page, _TERM_ROW)
    while len(rows) < int(slots["place"]):
        page = yield from click(
            page, "Next", "link", intent_phrase="", reason="The place is further down"
        )
        page, next_rows = yield from find_rows(page, _TERM_ROW)
        rows += next_rows
    term = rows[int(slots["place"]) - 1][1]
    yield from answer(term, reason="The terms are listed by uses, the most used first")
