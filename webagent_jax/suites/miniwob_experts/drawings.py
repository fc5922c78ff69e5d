"""Experts of pages with colors and drawings, which observations describe in words."""

from __future__ import annotations

from webagent_jax.suites.miniwob_experts.helpers import (
    all_of,
    click,
    click_on,
    find,
    has,
    text_between,
)
from webagent_jax.types import Element, Expert, Observation

# Colors of the pages whose names differ in observations. Those of "" have no name there.
_COLOR_WORDS = {
    "olive": "yellow",
    "lime": "green",
    "black": "",
    "white": "",
    "grey": "",
}
_SHADES = {"red": ("red", "pink"), "green": ("green",), "blue": ("blue",)}
# Colors of drawings, with their words in observations.
_SHAPE_COLORS = {
    "red": "red",
    "green": "green",
    "blue": "blue",
    "aqua": "cyan",
    "black": "black",
    "magenta": "magenta",
    "yellow": "yellow",
}
_SIZES = ("large", "small")
_FIGURES = ("circle", "rectangle", "triangle")


def click_color(intent: str, page: Observation) -> Expert:
    """Click on the cyan colored box."""
    color = text_between(intent, "Click on the ", " colored box")
    words = f"color {_COLOR_WORDS.get(color, color)}".strip()
    yield click_on(page, find(page, words), text=color)


def click_shades(intent: str, page: Observation) -> Expert:
    """Select all the shades of blue and press Submit."""
    color = text_between(intent, "shades of ", " and press")
    shades = _SHADES[color]
    for item in all_of(page, "item"):
        if page.elements[item].name in shades:
            reason = f"shades of {color} are {' and '.join(shades)}"
            page = yield click_on(page, item, reason=reason)
    yield click(page, "Submit", reason=f"all shades of {color} are selected")


def click_shape(intent: str, page: Observation) -> Expert:
    """Click on a large blue item (or digit, letter, shape, circle, T, 7)."""
    description = intent.removeprefix("Click on a ")
    matches = [i for i in all_of(page, "item") if _matches(page.elements[i], description)]
    yield click_on(page, matches[0])


def count_shape(intent: str, page: Observation) -> Expert:
    """Answer "How many large magenta digits are there?"."""
    description = text_between(intent, "How many ", "s are there")
    figures = [page.elements[i] for i in all_of(page, "item")]
    names = [figure.name for figure in figures if _matches(figure, description)]
    # Sizes are unknown in a drawing of one size: a missing answer means the other size.
    count = str(len(names)) if has(page, str(len(names)), "button") else "0"
    reason = f"{description}s: {', '.join(names) if count != '0' else 'none'}"
    yield click(page, count, "button", reason=reason)


def _matches(figure: Element, description: str) -> bool:
    """Return whether a description fits: optional size, optional color, kind or text."""
    *properties, kind = description.split(" ")
    text, *words = figure.name.split(" ")
    # Black letters have no color in their names; figures of one size no size.
    color = next((word for word in words if word in _SHAPE_COLORS.values()), "black")
    size = next((word for word in words if word in _SIZES), None)
    for word in properties:
        if word in _SIZES and size not in (None, word):
            return False
        if word in _SHAPE_COLORS and color != _SHAPE_COLORS[word]:
            return False
    group = "shape" if text in _FIGURES else "digit" if text.isdigit() else "letter"
    return kind in ("item", text, group)


def identify_shape(intent: str, page: Observation) -> Expert:
    """Click the button that best describes the figure below."""
    text = page.elements[all_of(page, "item")[0]].name.split()[0]
    kind = text.capitalize() if text in _FIGURES else "Number" if text.isdigit() else "Letter"
    yield click(page, kind, "button")


def grid_coordinate(intent: str, page: Observation) -> Expert:
    """Click on the grid coordinate (0,-1)."""
    x, y = map(int, text_between(intent, "(", ")").split(","))
    # Columns from left to right, each from top to bottom; both coordinates are -2 to 2.
    circles = [i for i in all_of(page, "item") if "circle" in page.elements[i].name]
    column, row = x + 2, 2 - y
    reason = f"({x},{y}) is column {column + 1}, row {row + 1}"
    yield click_on(page, circles[5 * column + row], reason=reason)
