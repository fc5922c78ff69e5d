"""Experts of tasks that need clicks only, one or several in order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from webagent_jax.suites.miniwob_experts.helpers import (
    ORDINALS,
    all_of,
    click,
    click_on,
    find_below,
    has,
    hover,
    plain_lines,
    quotations,
    select,
    text_between,
    wait,
)
from webagent_jax.types import Expert, Observation

# Rows, columns and diagonals of tic-tac-toe.
_ROWS = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def click_quoted(intent: str, page: Observation) -> Expert:
    """Click on the "ok" button."""
    (name,) = quotations(intent)
    yield click(page, name)


def click_dialog_2(intent: str, page: Observation) -> Expert:
    """Click the button in the dialog box labeled "Cancel" (the element of "x" is named Close)."""
    (name,) = quotations(intent)
    yield click(page, "Close" if name == "x" else name, "button")


def click_only_button(intent: str, page: Observation) -> Expert:
    """Click the button."""
    (button,) = all_of(page, "button")
    yield click_on(page, button)


def click_test_2(intent: str, page: Observation) -> Expert:
    """Click button ONE."""
    yield click(page, text_between(intent, "button ", "."))


def click_button_sequence(intent: str, page: Observation) -> Expert:
    """Click button ONE, then click button TWO."""
    page = yield click(page, "ONE")
    yield click(page, "TWO")


def focus_text(intent: str, page: Observation) -> Expert:
    """Focus into the textbox."""
    (box,) = all_of(page, "textbox")
    yield click_on(page, box)


def focus_text_2(intent: str, page: Observation) -> Expert:
    """Focus into the 2nd input textbox."""
    ordinal = text_between(intent, "into the ", " input")
    yield click_on(page, all_of(page, "textbox")[ORDINALS[ordinal]])


def click_option(intent: str, page: Observation) -> Expert:
    """Select kdJ and click Submit."""
    page = yield click(page, text_between(intent, "Select ", " and click"), "radio")
    yield click(page, "Submit")


def click_checkboxes(intent: str, page: Observation) -> Expert:
    """Select aB, x9 and click Submit (or: Select nothing)."""
    names = text_between(intent, "Select ", " and click")
    for name in names.split(", ") if names != "nothing" else ():
        page = yield click(page, name, "checkbox")
    yield click(page, "Submit")


def choose_list(intent: str, page: Observation) -> Expert:
    """Select Peru, Cuba from the scroll list and click Submit (or one from the list)."""
    for option in text_between(intent, "Select ", " from the").split(", "):
        page = yield select(page, option)
    yield click(page, "Submit")


def click_tab(intent: str, page: Observation) -> Expert:
    """Click on Tab #2."""
    yield click(page, text_between(intent, "Click on ", "."))


def click_tab_2(intent: str, page: Observation) -> Expert:
    """Switch between the tabs to find and click on the link "mauris"."""
    (name,) = quotations(intent)
    for tab in all_of(page, "tab")[1:]:
        if has(page, name):
            break
        page = yield click_on(page, tab)
    if has(page, name):
        yield click(page, name)


def click_collapsible(intent: str, page: Observation) -> Expert:
    """Expand the section below and click submit."""
    page = yield click_on(page, all_of(page, "tab")[0])
    yield click(page, "Submit")


def click_collapsible_2(intent: str, page: Observation) -> Expert:
    """Expand the sections below, to find and click on the link "mauris"."""
    (name,) = quotations(intent)
    for header in all_of(page, "tab"):
        if has(page, name):
            break
        page = yield click_on(page, header, reason=f'"{name}" is not on the page')
    yield click(page, name, reason=f'"{name}" is on the page')


def click_menu(intent: str, page: Observation) -> Expert:
    """Select Ada>Bea>Cleo."""
    *parents, leaf = intent.removeprefix("Select ").split(">")
    for parent, child in itertools.pairwise([*parents, leaf]):
        # A submenu opens with a delay while the pointer is over its parent.
        page = yield hover(page, parent, reason=f"{parent} opens {child}")
        while not has(page, child):
            page = yield wait(child)
    yield click(page, leaf, reason=f"{leaf} is the last")


def navigate_tree(intent: str, page: Observation) -> Expert:
    """Navigate through the file tree. Find and click on the folder or file named "Karrie"."""
    (name,) = quotations(intent)
    while not has(page, name):
        handles = (i for i, e in page.elements.items() if e.name.endswith("xpandable-hitarea"))
        page = yield click_on(page, next(handles))
    yield click(page, name)


def click_widget(intent: str, page: Observation) -> Expert:
    """Click on a "text" widget (or textarea, radio, checkbox, button)."""
    (widget,) = quotations(intent)
    kind = "textbox" if widget in ("text", "textarea") else widget
    yield click_on(page, all_of(page, kind)[0])


def use_spinner(intent: str, page: Observation) -> Expert:
    """Select -2 with the spinner and hit Submit."""
    number = int(text_between(intent, "Select ", " with"))
    name = "spinner-up" if number > 0 else "spinner-down"
    for value in range(0, number, 1 if number > 0 else -1):
        page = yield click(page, name, reason=f"{value} is not {number}")
    yield click(page, "Submit", reason=f"{number} is {number}")


def tic_tac_toe(intent: str, page: Observation) -> Expert:
    """Playing as 'X', win a game of tic-tac-toe."""
    cells = all_of(page, "item")[:9]
    while True:
        marks = [page.elements[cell].name for cell in cells]
        cell, reason = _choose_cell(marks)
        page = yield click_on(page, cells[cell], reason=reason)


def _choose_cell(marks: Sequence[str]) -> tuple[int, str]:
    """Return the free cell that wins, else one that prevents a loss, else the best one; why."""
    for mark in ("mark-x", "mark-o"):
        for row in _ROWS:
            free = [cell for cell in row if not marks[cell]]
            if len(free) == 1 and sum(marks[cell] == mark for cell in row) == 2:
                taken = " and ".join(str(cell + 1) for cell in row if cell != free[0])
                return free[0], f"{mark} at {taken}, {free[0] + 1} is free"

    def chances(cell: int) -> tuple[int, int]:
        """Return the number of rows of the cell that can still win: begun ones, and all."""
        rows = [[marks[other] for other in row] for row in _ROWS if cell in row]
        winnable = [row for row in rows if "mark-o" not in row]
        return sum("mark-x" in row for row in winnable), len(winnable)

    # Corners are first, because the first of several best cells is chosen.
    cell = max((cell for cell in (0, 2, 6, 8, 4, 1, 3, 5, 7) if not marks[cell]), key=chances)
    num_begun, num_rows = chances(cell)
    rows = f"{num_rows} {'row' if num_rows == 1 else 'rows'} without mark-o"
    return cell, f"no two in a row, {cell + 1} is in {rows}, {num_begun} with mark-x"


def generate_number(intent: str, page: Observation) -> Expert:
    """Generate a number less than 7, then press submit (or greater than, odd, even)."""
    while not _is_accepted(intent, page):
        page = yield click(page, "Generate")
    yield click(page, "Submit")


def _is_accepted(intent: str, page: Observation) -> bool:
    """Return whether the page shows a number that the intent accepts."""
    match = re.search(r"^\d+$", page.text, re.MULTILINE)
    if match is None:
        return False
    number = int(match.group())
    if "odd" in intent or "even" in intent:
        return number % 2 == ("odd" in intent)
    bound = int(text_between(intent, "than ", ","))
    return number < bound if "less" in intent else number > bound


def odd_or_even(intent: str, page: Observation) -> Expert:
    """Mark the numbers below as odd or even and press submit when done."""
    # Each number has two buttons, odd and even; the last button of the page is Submit.
    rows = zip(
        plain_lines(page), all_of(page, "button")[:-1:2], all_of(page, "button")[1::2], strict=True
    )
    for number, odd_button, even_button in rows:
        page = yield click_on(page, odd_button if int(number) % 2 else even_button, location=number)
    yield click(page, "Submit")


def find_greatest(intent: str, page: Observation) -> Expert:
    """Find and pick the card with the greatest number, then press submit."""
    max_number = max(int(page.elements[card].name) for card in all_of(page, "item"))
    page = yield click(page, str(max_number))
    yield click(page, "Submit")


def form_sequence_3(intent: str, page: Observation) -> Expert:
    """Choose 6ft 1in from the dropdown, then click the button labeled "Maybe"."""
    (button,) = quotations(intent)
    page = yield click_on(page, all_of(page, "item")[0])
    page = yield click(page, text_between(intent, "Choose ", " from the dropdown"))
    yield click(page, button)


def order_food(intent: str, page: Observation) -> Expert:
    """Order one of each item: Garlic bread, Ice cream sundae (or 3 items that are vegan)."""
    if "items that are" in intent:
        count, kind = text_between(intent, "Order ", " items"), intent.rsplit(maxsplit=1)[-1]
        foods = [(kind, plus) for plus in find_below(page, kind, "+")[:1] * int(count)]
    else:
        names = intent.split(": ")[1].split(", ")
        foods = [(name, find_below(page, name, "+")[0]) for name in names]
    for label, plus in foods:
        page = yield click_on(page, plus, location=label)
    yield click(page, "Order!")
