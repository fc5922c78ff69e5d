"""Instructions over generated pages, and the replies that follow them.

Each is one plain order: click this, type that there, pick an option, read a value; or a few such
orders in a row, to be carried out over as many turns. They teach reading, copying, matching a
phrase to the id of its element, and the grammar; how a real site wants to be used is left to
behaviour cloning and reinforcement learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.pretrain import pages, words
from webagent_jax.pretrain.pages import Item, Page
from webagent_jax.types import Action, ActionKind


@dataclass(frozen=True)
class Order:
    """One thing to do on a page, in words and as the right reply."""

    words: str
    thought: str
    action: Action
    after: Page  # the page once it is done


@dataclass(frozen=True)
class Exercise:
    """An instruction and the orders it consists of, with the page before each."""

    intent: str
    steps: tuple[tuple[Page, Order], ...]


def quoted(rng: np.random.Generator, name: str) -> str:
    return f'"{name}"' if rng.random() < 0.6 else name


def order(rng: np.random.Generator, page: Page, item: Item) -> Order:
    """Something to do with one element."""
    match item.kind:
        case "textbox":
            return _type(rng, page, item)
        case "select":
            return _select(rng, page, item)
    return _click(rng, page, item)


def exercise(rng: np.random.Generator, steps: int, most: int = 14) -> Exercise:
    """An exercise of so many turns."""
    page = pages.generate(rng, most)
    if steps == 1 and rng.random() < 0.1 and any(item.kind == "row" for item in page):
        return _reading(rng, page)
    done: list[tuple[Page, Order]] = []
    used: set[str] = set()
    while len(done) < steps:
        free = [item for item in pages.elements(page) if item.id not in used]
        if not free:
            page, used = pages.generate(rng, most), set()
            continue
        item = free[int(rng.integers(len(free)))]
        next_order = order(rng, page, item)
        done.append((page, next_order))
        used.add(item.id)
        page = next_order.after
        if item.kind in ("link", "tab") and rng.random() < 0.5:
            page, used = pages.generate(rng, most), set()
    parts = [step.words for _, step in done]
    return Exercise(_joined(rng, parts), tuple(done))


def orders_on_one_page(rng: np.random.Generator, count: int, most: int) -> tuple[Page, list[Order]]:
    """Many single orders over one page: dense supervision of matching."""
    page = pages.generate(rng, most)
    items = pages.elements(page)
    return page, [order(rng, page, items[int(rng.integers(len(items)))]) for _ in range(count)]


def _joined(rng: np.random.Generator, parts: Sequence[str]) -> str:
    if len(parts) == 1:
        text = parts[0]
    else:
        between = words.pick(rng, [", then ", "; ", ", ", ". Then "])
        last = words.pick(rng, [" and ", ", then ", " and then ", "; "])
        text = between.join(parts[:-1]) + last + parts[-1]
    return text[:1].upper() + text[1:] + words.pick(rng, [".", ".", "", "!"])


def _named(item: Item) -> str:
    """How a thought calls an element: as its line ends."""
    return f"{item.name or item.kind} [{item.id}]"


def _click(rng: np.random.Generator, page: Page, item: Item) -> Order:
    verb = words.pick(rng, ["click", "click on", "press", "open", "choose", "pick", "hit", "go to"])
    noun = words.pick(rng, ["", "", "", f" {item.kind}", " element"])
    the = words.pick(rng, ["", "the "]) if noun else ""
    after = page
    if item.kind in ("checkbox", "radio"):
        verb = words.pick(rng, ["tick", "check", "mark", "click", "choose"])
        after = pages.put(page, replace(item, value="off" if item.value == "on" else "on"))
    return Order(
        f"{verb} {the}{quoted(rng, item.name)}{noun}",
        f"click {_named(item)}",
        Action(ActionKind.CLICK, item.id),
        after,
    )


def _type(rng: np.random.Generator, page: Page, item: Item) -> Order:
    value = words.phrase(rng)
    if item.name:
        where = words.pick(rng, ["{}", "the {} field", "the {} box", "the textbox {}"])
        where = where.format(quoted(rng, item.name))
    else:
        where = f"box {item.id}"
    form = words.pick(rng, ["type {} in {}", "write {} into {}", "fill {} in {}", "put {} into {}"])
    return Order(
        form.format(quoted(rng, value), where),
        f'type "{value}" in {_named(item)}',
        Action(ActionKind.TYPE, item.id, value),
        pages.put(page, replace(item, value=value)),
    )


def _select(rng: np.random.Generator, page: Page, item: Item) -> Order:
    option = words.pick(rng, list(item.options))
    where = f" in {quoted(rng, item.name)}" if item.name else f" in select {item.id}"
    form = words.pick(rng, ["pick {}", "set {}", "take {}", "change to {}"])
    return Order(
        form.format(quoted(rng, option)) + where,
        f'select "{option}" in {_named(item)}',
        Action(ActionKind.SELECT, item.id, option),
        pages.put(page, replace(item, value=option)),
    )


def _reading(rng: np.random.Generator, page: Page) -> Exercise:
    rows = [item for item in page if item.kind == "row"]
    row = rows[int(rng.integers(len(rows)))]
    form = words.pick(rng, ["what is {}?", "read {}", "tell me {}", "what stands beside {}?"])
    asked = Order(
        form.format(quoted(rng, row.name)),
        f'"{row.name}" is "{row.value}"',
        Action(ActionKind.EXIT, value=row.value),
        page,
    )
    return Exercise(_joined(rng, [asked.words]), ((page, asked),))
