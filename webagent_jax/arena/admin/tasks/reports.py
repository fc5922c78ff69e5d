"""Questions about the reports on bestsellers and sales, and reports to open."""

from __future__ import annotations

import random

from webagent_jax.arena.admin.tasks.helpers import (
    ADMIN,
    LONG_PERIODS,
    MONTHS,
    find_rows,
    first_and_last_day,
    go_to_report,
    month_name,
    period_condition,
    sample_month,
    submit_report_form,
)
from webagent_jax.arena.shop.tasks.helpers import dollar_formats, format_dollars, parse_cents
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    url_equals,
)
from webagent_jax.expert_steps import Moves, answer, click, finish, has_element
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


# --- bestsellers ---------------------------------------------------------------------------------

_BEST_ROW = r"(?:[A-Z][a-z]{2} )?\d{4} (\d) ([^$]+) \$([\d,.]+) (\d+)(?= |$)"
"""Pattern of a row in the report: place, product, price, pieces."""


def _bestsellers(data: Data, period: str) -> list[tuple[str, int]]:
    """Return the six best products of a period with their pieces, the best first."""
    sql = (
        "SELECT product.name, sum(quantity) AS pieces FROM purchase"
        " JOIN purchase_item ON purchase_id = purchase.id JOIN product ON product.id = product_id"
        f" WHERE status != 'Cancelled' AND {period_condition()} GROUP BY product_id"
        " ORDER BY pieces DESC"
    )
    return [
        tuple(row) for row in data["shop"].execute(sql, first_and_last_day(period)).fetchmany(6)
    ]


def _sample_top_products(data: Data, rng: random.Random) -> TaskInstance | None:
    months = [month_name(month, "%b %Y") for month in MONTHS]
    period, count = rng.choice([*months, *LONG_PERIODS]), rng.randint(1, 5)
    rows = _bestsellers(data, period)
    if rows[count - 1][1] == rows[count][1]:
        return None
    names = [name for name, _ in rows]
    spec = answer_includes(*names[:count], excluding=names)
    return TaskInstance({"n": str(count), "period": period}, spec)


@tasks.add(
    "top-products",
    _sample_top_products,
    "What are the top-{n} best-selling products in {period}",
    "What is the top-{n} best-selling product in {period}?",
    "Which products are the top {n} by pieces sold in {period}? List them.",
    "Name the top {n} of the bestsellers of {period}, by pieces sold.",
    "Look at the bestsellers of {period}: what is the top {n}?",
    "I need the names of the top-{n} sellers in {period}",
)
def top_products(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_bestsellers(page, slots["period"])
    page, rows = yield from find_rows(page, _BEST_ROW)
    names = [row[2] for row in rows[: int(slots["n"])]]
    yield from answer(", ".join(names), reason="The rows are in the order of pieces sold")


def _go_to_bestsellers(page: Observation, period: str) -> Moves:
    page = yield from go_to_report(page, "Bestsellers", "It tells which products are sold most")
    kind = "Month" if period.split(maxsplit=1)[0].isalpha() and "of" not in period else "Year"
    return (yield from submit_report_form(page, first_and_last_day(period), kind))


def _sample_best_and_pieces(data: Data, rng: random.Random) -> TaskInstance | None:
    period, place = month_name(rng.choice(MONTHS)), rng.randint(1, 4)
    rows = _bestsellers(data, period)
    pieces = [number for _, number in rows]
    if pieces.count(pieces[place - 1]) > 1:
        return None
    name, num_sold = rows[place - 1]
    rank = ("best", "second best", "third best", "fourth best")[place - 1]
    spec = answer_includes(name, str(num_sold), excluding=[other for other, _ in rows])
    return TaskInstance({"rank": rank, "month": period}, spec)


@tasks.add(
    "best-and-pieces",
    _sample_best_and_pieces,
    "Which was our {rank} selling product in {month}, and how many pieces of it were sold?",
    "Name the {rank} selling product of {month} and the number of pieces sold.",
    "Tell me the {rank} seller of {month} together with the quantity sold.",
    "In {month}, what sold {rank} and how often?",
    "From the bestsellers of {month}: give me the {rank} selling product and its pieces",
)
def best_and_pieces(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_bestsellers(page, slots["month"])
    page, rows = yield from find_rows(page, _BEST_ROW)
    place = ("best", "second best", "third best", "fourth best").index(slots["rank"])
    text = f"{rows[place][2]}, {rows[place][4]} pieces"
    yield from answer(text, evidence=f"place {place + 1}", reason="Places are by pieces sold")


def _sample_show_report(data: Data, rng: random.Random) -> TaskInstance | None:
    period = rng.choice(LONG_PERIODS)
    first, last = first_and_last_day(period)
    report = rng.choice(("bestsellers", "sales"))
    step = rng.choice(("daily", "monthly", "yearly"))
    key = {"daily": "day", "monthly": "month", "yearly": "year"}[step]
    url = f"{ADMIN}/reports/{report}?period={key}&from={first}&to={last}"
    return TaskInstance({"step": step, "report": report, "period": period}, url_equals(url))


@tasks.add(
    "show-report",
    _sample_show_report,
    "Create a {step} {report} report for {period}.",
    "Show me the {report} report of {period}, {step}.",
    "Run the {report} report for {period} with {step} figures",
    "I want to see {step} {report} for {period}. Leave the report open.",
    "Open the {report} report and show {period} on a {step} basis.",
)
def show_report(slots: Slots, page: Observation) -> Expert:
    name = slots["report"].capitalize()
    page = yield from go_to_report(page, name, "That is the wanted report")
    step = {"daily": "Day", "monthly": "Month", "yearly": "Year"}[slots["step"]]
    yield from submit_report_form(page, first_and_last_day(slots["period"]), step)
    yield from finish("The report is shown")


# --- sales ---------------------------------------------------------------------------------------

_SALES_ROW = r"([A-Z][a-z]{2} \d{4}) ([\d,]+) \$([\d,.]+) \$([\d,.]+) \$([\d,.]+)"
_FIGURES = {"number of orders": 2, "discounts": 3, "refunds": 4, "revenue": 5}
"""Figures in a row of the report, and their groups in the pattern."""


def _sales(data: Data, first: str, last: str) -> list[tuple[str, int, int, int, int]]:
    """Return the sales by month: month, orders, discounts, refunds, revenue."""
    sql = (
        "SELECT substr(placed, 1, 7), count(*), sum(discount), coalesce(sum(amount), 0), sum(total)"
        " FROM purchase LEFT JOIN refund ON purchase_id = purchase.id"
        f" WHERE status != 'Cancelled' AND {period_condition()} GROUP BY 1 ORDER BY 1"
    )
    return [tuple(row) for row in data["shop"].execute(sql, [first, last])]


def _reference(figure: str, value: int) -> str:
    return str(value) if figure == "number of orders" else dollar_formats(value)


def _sample_sales_figure(data: Data, rng: random.Random) -> TaskInstance | None:
    month, figure = sample_month(rng), rng.choice(list(_FIGURES))
    ((_, *values),) = _sales(data, *first_and_last_day(month))
    value = values[_FIGURES[figure] - 2]
    return TaskInstance(
        {"figure": figure, "month": month}, answer_includes(_reference(figure, value))
    )


@tasks.add(
    "sales-figure",
    _sample_sales_figure,
    "According to the sales report, what was the {figure} in {month}?",
    "Tell me the {figure} of {month} (sales report).",
    "What does the sales report give as {figure} for {month}?",
    "Look up the {figure} for {month}; cancelled orders do not count.",
    "I need the {figure} of our shop in {month}, as the sales report has it",
)
def sales_figure(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Sales", "It sums up the orders of a time")
    page = yield from submit_report_form(page, first_and_last_day(slots["month"]), "Month")
    page, rows = yield from find_rows(page, _SALES_ROW)
    value = rows[0][_FIGURES[slots["figure"]]]
    money = "" if slots["figure"] == "number of orders" else "$"
    yield from answer(f"{money}{value}", evidence=rows[0][1], reason="That is the row of the month")


_SPANS = ("the first half of 2022", "the second half of 2022", "2022")


def _sample_extreme_month(data: Data, rng: random.Random) -> TaskInstance | None:
    span, figure, end = (
        rng.choice(options) for options in (_SPANS, list(_FIGURES), ("highest", "lowest"))
    )
    rows = sorted(
        _sales(data, *first_and_last_day(span)), key=lambda row: int(row[_FIGURES[figure] - 1])
    )
    best_row = rows[-1 if end == "highest" else 0]
    value = best_row[_FIGURES[figure] - 1]
    if sum(row[_FIGURES[figure] - 1] == value for row in rows) > 1:
        return None
    formats = ("%B", "%b %Y", "%b")
    month = " |OR| ".join(dict.fromkeys(month_name(best_row[0], text) for text in formats))
    spec = answer_includes(month, _reference(figure, int(value)))
    return TaskInstance({"end": end, "figure": figure, "span": span}, spec)


@tasks.add(
    "extreme-month",
    _sample_extreme_month,
    "Which month of {span} has the {end} {figure} in the sales report, and what is the value?",
    "Which month of {span} had the {end} {figure}? Give the month and the figure.",
    "Find the month with the {end} {figure} in {span}, and tell me the value too.",
    "By the sales report of {span}, which month had the {end} {figure}, and how much was that?",
    "Look through {span} month by month for the {end} {figure}. Name month and value",
)
def extreme_month(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Sales", "It has a row for each month")
    page = yield from submit_report_form(page, first_and_last_day(slots["span"]), "Month")
    page, rows = yield from find_rows(page, _SALES_ROW)
    while has_element(page, "Next", "link"):
        page = yield from click(
            page, "Next", "link", intent_phrase="", reason="There are more months"
        )
        page, next_rows = yield from find_rows(page, _SALES_ROW)
        rows += next_rows
    column = _FIGURES[slots["figure"]]
    select = max if slots["end"] == "highest" else min
    best_row = select(rows, key=lambda row: parse_cents(row[column]))
    money = "" if slots["figure"] == "number of orders" else "$"
    text = f"{best_row[1]}, {money}{best_row[column]}"
    yield from answer(text, reason=f"Of all months this is the {slots['end']}")


def _sample_revenue_difference(data: Data, rng: random.Random) -> TaskInstance | None:
    index = rng.randrange(len(MONTHS) - 1)
    a, b = MONTHS[index], MONTHS[index + 1]
    (*_, first), (*_, second) = _sales(data, f"{a}-01", first_and_last_day(month_name(b))[1])
    slots = {"a": month_name(a), "b": month_name(b)}
    return TaskInstance(slots, answer_includes(dollar_formats(abs(second - first))))


@tasks.add(
    "revenue-difference",
    _sample_revenue_difference,
    "By how much did our revenue change from {a} to {b}?",
    "What is the difference between the revenue of {a} and that of {b}?",
    "Compare {a} with {b}: how many dollars lie between the two revenues?",
    "How far apart are the revenues of {a} and {b}, in dollars?",
    "Use the sales report to tell me the difference in revenue between {a} and {b}",
)
def revenue_difference(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_report(page, "Sales", "It tells the revenue of each month")
    days = (first_and_last_day(slots["a"])[0], first_and_last_day(slots["b"])[1])
    page = yield from submit_report_form(page, days, "Month")
    page, rows = yield from find_rows(page, _SALES_ROW)
    low, high = sorted(parse_cents(row[5]) for row in rows)
    text = f"${format_dollars(high - low)}"
    yield from answer(
        text,
        evidence=f"{format_dollars(high)} - {format_dollars(low)}",
        reason="I take the difference",
    )
