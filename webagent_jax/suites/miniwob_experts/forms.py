"""Experts of tasks with text fields: values from the intent, from the page, or computed."""

from __future__ import annotations

import datetime
import re

from webagent_jax.suites.miniwob_experts.helpers import (
    ORDINALS,
    all_of,
    click,
    click_on,
    has,
    plain_lines,
    quotations,
    search,
    text_between,
    type_in,
    type_into,
)
from webagent_jax.types import Expert, Observation

# --- values from the intent -----------------------------------------------------------------------


def _fill_and_submit(page: Observation, text: str, *, reason: str = "") -> Expert:
    """Fill the first empty field of the page and click Submit."""
    box = next(i for i in all_of(page, "textbox") if not page.elements[i].value)
    page = yield type_in(page, text, box, reason=reason)
    yield click(page, "Submit")


def enter_text(intent: str, page: Observation) -> Expert:
    """Enter "Karrie" into the text field and press Submit."""
    (text,) = quotations(intent)
    return _fill_and_submit(page, text)


def enter_text_2(intent: str, page: Observation) -> Expert:
    """Type "karrie" in all upper case letters in the text input and press Submit."""
    (text,) = quotations(intent)
    return _fill_and_submit(page, text.upper() if "upper case" in intent else text.lower())


def enter_password(intent: str, page: Observation) -> Expert:
    """Enter the password "4jT" into both text fields and press submit."""
    (password,) = quotations(intent)
    page = yield type_into(page, password, "Password")
    page = yield type_into(page, password, "Verify password")
    yield click(page, "Submit")


def login_user(intent: str, page: Observation) -> Expert:
    """Enter the username "karrie" and the password "4jT" into the text fields and press login."""
    user, password = quotations(intent)
    page = yield type_into(page, user, "Username")
    page = yield type_into(page, password, "Password")
    yield click(page, "Login")


def login_user_popup(intent: str, page: Observation) -> Expert:
    """Enter the username "karrie" and the password "4jT" (a dialog to cancel may appear once)."""
    user, password = quotations(intent)
    for text, field in ((user, "Username"), (password, "Password")):
        page = yield type_into(page, text, field, reason=f"{field} is empty")
        # The dialog may interrupt the typing, so the text is typed again.
        if has(page, "Cancel"):
            page = yield click(page, "Cancel", reason="a dialog is open")
            page = yield type_into(page, text, field, reason=f"{field} is empty")
    yield click(page, "OK", reason="Username and Password are filled")


def enter_date(intent: str, page: Observation) -> Expert:
    """Enter 03/24/2016 as the date and hit submit."""
    month, day, year = text_between(intent, "Enter ", " as the date").split("/")
    return _fill_and_submit(page, f"{year}-{month}-{day}")


def enter_time(intent: str, page: Observation) -> Expert:
    """Enter 9:05 PM as the time and press submit."""
    time = text_between(intent, "Enter ", " as the time")
    text = datetime.datetime.strptime(time, "%I:%M %p").strftime("%H:%M")
    return _fill_and_submit(page, text, reason=f"{time} is {text}")


def form_sequence_2(intent: str, page: Observation) -> Expert:
    """Check the 2nd radio button and enter the number "17" into the 3rd textbox."""
    (number,) = quotations(intent)
    radio = all_of(page, "radio")[ORDINALS[text_between(intent, "Check the ", " radio")]]
    box = all_of(page, "textbox")[ORDINALS[text_between(intent, "into the ", " textbox")]]
    page = yield click_on(page, radio)
    page = yield type_in(page, number, box)
    yield click(page, "Submit")


def movie_search(intent: str, page: Observation) -> Expert:
    """Search for comedy movies directed by Berg from year 1984."""
    query = {
        "Genre": text_between(intent, "Search for ", " movies"),
        "Director": text_between(intent, "directed by ", " from"),
        "Year": text_between(intent, "from year ", "."),
    }
    boxes = all_of(page, "textbox")
    # In one of the layouts the labels are plain text below the fields.
    labels = [page.elements[box].name for box in boxes if page.elements[box].name]
    for box, label in zip(boxes, labels or plain_lines(page), strict=True):
        field = next(key for key in query if key in label.replace("Released Date", "Year"))
        page = yield type_in(page, query[field], box, reason=f"{field} is {query[field]}")
    buttons = ("Submit", "Search", "Go!")
    yield click(page, next(name for name in buttons if has(page, name)), reason="all are filled")


# --- values from the page -------------------------------------------------------------------------


def _parse_table(page: Observation) -> dict[str, str]:
    rows = (line.split(" | ") for line in plain_lines(page))
    return {row[0]: row[1] for row in rows if len(row) == 2}


def read_table(intent: str, page: Observation) -> Expert:
    """Enter the value of Country into the text field and press Submit."""
    return _fill_and_submit(page, _parse_table(page)[text_between(intent, "value of ", " into")])


def read_table_2(intent: str, page: Observation) -> Expert:
    """Enter the value that corresponds with each label into the form and submit when done."""
    table = _parse_table(page)
    for box in all_of(page, "textbox"):
        label = page.elements[box].name.removesuffix(":")
        page = yield type_in(page, table[label], box)
    yield click(page, "Submit")


def find_word(intent: str, page: Observation) -> Expert:
    """Find the 4th word in the paragraph, type that into the textbox and press "Submit"."""
    position = int(re.sub(r"\D", "", text_between(intent, "Find the ", " word")))
    (box,) = all_of(page, "textbox")
    words = (page.elements[box].name or plain_lines(page)[0]).split()
    return _fill_and_submit(page, re.sub(r"[^a-zA-Z]", "", words[position - 1]))


def text_transform(intent: str, page: Observation) -> Expert:
    """Type the text below into the text field and press Submit."""
    return _fill_and_submit(page, plain_lines(page)[0].replace(" ", ""))


def scroll_text(intent: str, page: Observation) -> Expert:
    """Find the last word in the text area, enter it into the text field and hit Submit."""
    source = next(i for i in all_of(page, "textbox") if page.elements[i].value)
    return _fill_and_submit(page, page.elements[source].value.split()[-1].rstrip("."))


def copy_paste(intent: str, page: Observation) -> Expert:
    """Copy the text in the textarea below, paste it into the textbox and press Submit."""
    source = next(i for i in all_of(page, "textbox") if page.elements[i].value)
    return _fill_and_submit(page, _text_with_trailing_space(page, source))


def copy_paste_2(intent: str, page: Observation) -> Expert:
    """Copy the text from the 2nd text area below and paste it into the text input."""
    source = all_of(page, "textbox")[ORDINALS[text_between(intent, "from the ", " text")]]
    return _fill_and_submit(page, _text_with_trailing_space(page, source))


def _text_with_trailing_space(page: Observation, source: str) -> str:
    """Return the text of a field with the trailing space that observations omit on these pages."""
    return page.elements[source].value.strip() + " "


# --- computed values ------------------------------------------------------------------------------


def simple_arithmetic(intent: str, page: Observation) -> Expert:
    """Solve the math problem and type your answer into the textbox."""
    first, sign, second = search(r"(\d+) ([-+x]) (\d+)", page.text).groups()
    a, b = int(first), int(second)
    result = {"+": a + b, "-": a - b, "x": a * b}[sign]
    return _fill_and_submit(page, str(result))


def simple_algebra(intent: str, page: Observation) -> Expert:
    """Solve for x and type your answer into the textbox."""
    first, sign, second, result = search(r"(\w+) ([-+]) (\w+) = (-?\d+)", page.text).groups()
    if sign == "+":
        solution = int(result) - int(second if first == "x" else first)
    elif first == "x":
        solution = int(result) + int(second)
    else:
        solution = int(first) - int(result)
    return _fill_and_submit(page, str(solution))


def guess_number(intent: str, page: Observation) -> Expert:
    """Guess the number between 0-9 and press Submit. Use the feedback below."""
    low, high = 0, 9
    (box,) = all_of(page, "textbox")
    while True:
        guess = (low + high) // 2
        page = yield type_in(page, str(guess), box)
        page = yield click(page, "Submit")
        if f"lower than {guess}" in page.text:
            high = guess - 1
        elif f"higher than {guess}" in page.text:
            low = guess + 1
        else:
            return
