"""Pages that are small sites: results to page through, suggestions to pick from, tickets to buy."""

from __future__ import annotations

import datetime
import re

from webagent_jax.suites.miniwob_experts.helpers import (
    all_of,
    between,
    click,
    click_on,
    quoted,
    type_in,
    wait,
)
from webagent_jax.types import Expert, Observation


def search_engine(intent: str, page: Observation) -> Expert:
    """Enter "Karrie", press "Search", then find and click the 4th search result."""
    name = quoted(intent)[0]
    position = int(re.sub(r"\D", "", between(intent, "click the ", " search result")))
    (box,) = all_of(page, "textbox")
    page = yield type_in(page, name, box)
    page = yield click(page, "Search")
    if position > 3:
        page = yield click(page, str((position - 1) // 3 + 1))
    yield click_on(page, all_of(page, "link")[(position - 1) % 3])


def phone_book(intent: str, page: Observation) -> Expert:
    """Find Ilka in the contact book and click on their phone number. (Email, address.)"""
    person = between(intent, "Find ", " in the contact")
    while person not in page.text.splitlines():
        page = yield click(page, ">")
    wanted = between(intent, "on their ", ".").removesuffix(" number")
    pattern = {"phone": r"\d{3}-\d{3}-\d{4}", "email": r"\S+@\S+", "address": r"\d+ .*"}[wanted]
    details = (i for i, e in page.elements.items() if re.fullmatch(pattern, e.name))
    yield click_on(page, next(details))


def use_autocomplete(intent: str, page: Observation) -> Expert:
    """Enter an item that starts with "Per" and ends with "ru"."""
    start, end = [*quoted(intent), ""][:2]
    (box,) = all_of(page, "textbox")
    page = yield type_in(page, start, box)
    while (suggestion := _suggestion(page, start, end)) is None:
        page = yield wait(start)
    page = yield click_on(page, suggestion)
    yield click(page, "Submit")


def _suggestion(page: Observation, start: str = "", end: str = "", *, part: str = "") -> str | None:
    """Id of the first entry of an open list that starts, ends and reads like that."""
    for element_id, element in page.elements.items():
        name = element.name
        fits = name.startswith(start) and name.endswith(end) and part in name
        if fits and element.kind in ("option", "item"):
            return element_id
    return None


def book_flight(intent: str, page: Observation) -> Expert:
    """Book the cheapest one-way flight from: PDX to: Dallas on 10/24/2016. (Or the shortest.)"""
    cities = between(intent, "from: ", " to: "), between(intent, " to: ", " on ")
    origin, destination, date = all_of(page, "textbox")
    for city, field in zip(cities, (origin, destination), strict=True):
        page = yield type_in(page, city, field)
        while (suggestion := _suggestion(page, part=city)) is None:
            page = yield wait(city)
        page = yield click_on(page, suggestion)
    page = yield click_on(page, date)
    day = _day(between(intent, " on ", "."))
    while f"{day:%B %Y}" not in page.text:
        page = yield click(page, "Prev")
    page = yield click(page, str(day.day))
    page = yield click(page, "Search")
    yield click_on(page, _best(page, "Book flight for ", "cheapest" in intent, lowest=True))


def choose_date(intent: str, page: Observation) -> Expert:
    """Select 10/24/2016 as the date and hit submit. The calendar opens in December."""
    page = yield click_on(page, all_of(page, "textbox")[0])
    day = _day(between(intent, "Select ", " as the date"))
    while f"{day:%B %Y}" not in page.text:
        page = yield click(page, "Prev")
    page = yield click(page, str(day.day))
    yield click(page, "Submit")


def _day(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%m/%d/%Y")


def buy_ticket(intent: str, page: Observation) -> Expert:
    """Buy the ticket with the cheapest cost. (Most expensive; shortest or longest duration.)"""
    lowest = "cheapest" in intent or "shortest" in intent
    yield click_on(page, _best(page, "Book for ", "cost" in intent, lowest=lowest))


def _best(page: Observation, label: str, by_price: bool, *, lowest: bool) -> str:
    """Id of the buying button of the cheapest, dearest, shortest or longest offer."""
    buttons = [i for i, e in page.elements.items() if e.name.startswith(label)]
    if by_price:
        worth = [int(page.elements[i].name.split("$")[1]) for i in buttons]
    else:
        durations = re.findall(r"(\d+)h (\d+)m", page.text)
        worth = [int(hours) * 60 + int(minutes) for hours, minutes in durations]
    best = min(worth) if lowest else max(worth)
    return buttons[worth.index(best)]
