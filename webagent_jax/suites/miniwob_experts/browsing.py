"""Experts of tasks with several views: search results, suggestions, calendars, tickets."""

from __future__ import annotations

import datetime
import re
from collections.abc import Generator

from webagent_jax.suites.miniwob_experts.helpers import (
    all_of,
    click,
    click_on,
    quotations,
    search,
    text_between,
    type_in,
    wait,
)
from webagent_jax.types import Decision, Expert, Observation


def search_engine(intent: str, page: Observation) -> Expert:
    """Enter "Karrie", press "Search", then find and click the 4th search result."""
    name = quotations(intent)[0]
    position = int(re.sub(r"\D", "", text_between(intent, "click the ", " search result")))
    (box,) = all_of(page, "textbox")
    page = yield type_in(page, name, box)
    page = yield click(page, "Search")
    # The site shows three results per page, and links to the pages by their numbers.
    number, row = (position - 1) // 3 + 1, (position - 1) % 3
    if number > 1:
        reason = f"result {position} is number {row + 1} of page {number}"
        page = yield click(page, str(number), reason=reason)
    links = all_of(page, "link")
    names = ", ".join(page.elements[link].name for link in links[:3])
    yield click_on(page, links[row], reason=f"number {row + 1} of {names}")


def phone_book(intent: str, page: Observation) -> Expert:
    """Find Ilka in the contact book and click on their phone number (or email, address)."""
    person = text_between(intent, "Find ", " in the contact")
    while person not in page.text.splitlines():
        page = yield click(page, ">")
    detail = text_between(intent, "on their ", ".").removesuffix(" number")
    pattern = {"phone": r"\d{3}-\d{3}-\d{4}", "email": r"\S+@\S+", "address": r"\d+ .*"}[detail]
    candidates = (i for i, e in page.elements.items() if re.fullmatch(pattern, e.name))
    yield click_on(page, next(candidates))


def use_autocomplete(intent: str, page: Observation) -> Expert:
    """Enter an item that starts with "Per" and ends with "ru"."""
    start, end = [*quotations(intent), ""][:2]
    (box,) = all_of(page, "textbox")
    page = yield type_in(page, start, box)
    # Suggestions appear some time after the text is typed.
    while (suggestion := _find_suggestion(page, start, end)) is None:
        page = yield wait(start)
    page = yield click_on(page, suggestion)
    yield click(page, "Submit")


def _find_suggestion(
    page: Observation, start: str = "", end: str = "", *, part: str = ""
) -> str | None:
    """Return the id of the first list entry that starts with, ends with and contains the texts."""
    for element_id, element in page.elements.items():
        name = element.name
        is_match = name.startswith(start) and name.endswith(end) and part in name
        if is_match and element.kind in ("option", "item"):
            return element_id
    return None


def book_flight(intent: str, page: Observation) -> Expert:
    """Book the cheapest one-way flight from: PDX to: Dallas on 10/24/2016 (or the shortest)."""
    cities = text_between(intent, "from: ", " to: "), text_between(intent, " to: ", " on ")
    origin, destination, date = all_of(page, "textbox")
    for city, field in zip(cities, (origin, destination), strict=True):
        page = yield type_in(page, city, field)
        while (suggestion := _find_suggestion(page, part=city)) is None:
            page = yield wait(city)
        page = yield click_on(page, suggestion)
    page = yield click_on(page, date)
    page = yield from _choose_day(page, text_between(intent, " on ", "."))
    page = yield click(page, "Search")
    yield click_on(page, _best_offer(page, "Book flight for ", "cheapest" in intent, lowest=True))


def choose_date(intent: str, page: Observation) -> Expert:
    """Select 10/24/2016 as the date and hit submit. The calendar opens in December."""
    page = yield click_on(page, all_of(page, "textbox")[0])
    page = yield from _choose_day(page, text_between(intent, "Select ", " as the date"))
    yield click(page, "Submit")


def _choose_day(page: Observation, date: str) -> Generator[Decision, Observation, Observation]:
    """Go back to the month of a date such as 10/24/2016 and choose the day; return the page."""
    day = datetime.datetime.strptime(date, "%m/%d/%Y")
    month = f"{day:%B %Y}"
    while month not in page.text:
        shown = search(r"(?m)^[A-Z][a-z]+ \d{4}$", page.text).group()
        page = yield click(page, "Prev", reason=f"{date} is in {month}, not in {shown}")
    return (yield click(page, str(day.day), reason=f"{date} is day {day.day} of {month}"))


def buy_ticket(intent: str, page: Observation) -> Expert:
    """Buy the ticket with the cheapest cost (or most expensive, shortest, longest)."""
    lowest = "cheapest" in intent or "shortest" in intent
    yield click_on(page, _best_offer(page, "Book for ", "cost" in intent, lowest=lowest))


def _best_offer(page: Observation, label: str, by_price: bool, *, lowest: bool) -> str:
    """Return the id of the button of the offer with the lowest or highest price or duration."""
    buttons = [i for i, e in page.elements.items() if e.name.startswith(label)]
    if by_price:
        values = [int(page.elements[i].name.split("$")[1]) for i in buttons]
    else:
        durations = re.findall(r"(\d+)h (\d+)m", page.text)
        values = [int(hours) * 60 + int(minutes) for hours, minutes in durations]
    best_value = min(values) if lowest else max(values)
    return buttons[values.index(best_value)]
