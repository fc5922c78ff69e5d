"""Instructions over generated pages, and the replies that follow them.

Each is one plain order: click this, type that there, pick an option, read a value; or a few such
orders in a row, some of them under one verb, to be carried out over as many turns. They teach
reading, copying, matching a phrase to the id of its element, keeping to an instruction over turns,
and the grammar; how a real site wants to be used is left to behaviour cloning and reinforcement
learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.pretrain import pages, words
from webagent_jax.pretrain.pages import Item, Page
from webagent_jax.types import Action, ActionKind

_NAMED = ["{n}", "{n}", "{n}", "the {n} {k}", "{n} {k}", "the {n}", "the {k} {n}"]  # {k}: kind
_CALLED = ["the {k} named {n}", "the element called {n}", "the {k} that says {n}"]
_COMPLAINTS = ["is disabled", "is not a text field", "is covered", "cannot be used", "is busy"]


@dataclass(frozen=True)
class Order:
    """One thing to do on a page, in words and as the right reply."""

    words: str  # empty when the words of the order before say it too
    thought: str
    action: Action
    after: Page  # the page once it is done
    about: str  # as of types.Decision


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
        alike = [other for other in free if other.kind == item.kind and other.name]
        room = min(steps - len(done), len(alike))
        if room > 1 and item.kind in ("checkbox", "textbox", "item", "option"):
            chosen = [alike[i] for i in rng.permutation(len(alike))[:room]]
            orders = _under_one_verb(rng, page, chosen)
        else:
            orders = [order(rng, page, item)]
        for next_order in orders:
            done.append((page, next_order))
            page = next_order.after
            used.add(next_order.action.element_id or "")
        if item.kind in ("link", "tab") and rng.random() < 0.5:
            page, used = pages.generate(rng, most), set()
    parts = [step.words for _, step in done if step.words]
    return Exercise(_joined(rng, parts), tuple(done))


def _under_one_verb(rng: np.random.Generator, page: Page, items: Sequence[Item]) -> list[Order]:
    """`tick a, b and c`; `type x in a and y in b`; `type x in a and b`."""
    orders: list[Order] = []
    same = words.phrase(rng) if rng.random() < 0.5 else None
    for item in items:
        made = _type(rng, page, item, same) if item.kind == "textbox" else _click(rng, page, item)
        orders.append(made)
        page = made.after
    names = [quoted(rng, item.name) for item in items]
    if items[0].kind == "textbox":
        values = [str(made.action.value) for made in orders]
        verb = words.pick(rng, ["type", "write", "put", "fill in"])
        link = words.pick(rng, ["in", "into", "as"])
        if same is not None:
            orders = [replace(o, about=i.name) for o, i in zip(orders, items, strict=True)]
            told = f"{verb} {quoted(rng, same)} {link} {_listed(rng, names)}"
        elif rng.random() < 0.5:
            pairs = [f"{quoted(rng, v)} {link} {n}" for v, n in zip(values, names, strict=True)]
            told = f"{verb} {_listed(rng, pairs)}"
        else:
            the = words.pick(rng, ["the ", "", "for "])
            pairs = [f"{the}{n} {quoted(rng, v)}" for v, n in zip(values, names, strict=True)]
            told = f"{verb} {_listed(rng, pairs)}"
    else:
        verb = words.pick(rng, ["tick", "check", "mark", "click", "choose", "take"])
        told = f"{verb} {_listed(rng, names)}"
    return [replace(made, words="" if n else told) for n, made in enumerate(orders)]


def _listed(rng: np.random.Generator, parts: Sequence[str]) -> str:
    last = words.pick(rng, [" and ", ", ", ", and "])
    return ", ".join(parts[:-1]) + last + parts[-1] if len(parts) > 1 else parts[0]


def slip(rng: np.random.Generator, page: Page) -> Order | None:
    """Something wrong to do on the page, which changes nothing; None where there is nothing."""
    items = pages.elements(page)
    made = order(rng, page, items[int(rng.integers(len(items)))]) if items else None
    return made and replace(made, after=page)


def complaint(rng: np.random.Generator, wrong: Order) -> str:
    """What a page might say of it."""
    if rng.random() < 0.5:
        return f"element {wrong.action.element_id} {words.pick(rng, _COMPLAINTS)}"
    return words.sentence(rng)


def orders_on_one_page(rng: np.random.Generator, count: int, most: int) -> tuple[Page, list[Order]]:
    """Many single orders over one page: dense supervision of matching."""
    page = pages.generate(rng, most)
    items = pages.elements(page)
    return page, [order(rng, page, items[int(rng.integers(len(items)))]) for _ in range(count)]


def _joined(rng: np.random.Generator, parts: Sequence[str]) -> str:
    between = words.pick(rng, [", then ", "; ", ", ", ". Then ", ". "])
    last = words.pick(rng, [" and ", ", then ", " and then ", "; "])
    text = between.join(parts[:-1]) + last + parts[-1] if len(parts) > 1 else parts[0]
    # Words that say nothing, so that orders are found by more than by where they stand.
    if rng.random() < 0.25:
        opening = ["please ", "now ", "on this page, ", "here, ", "first, ", "I want you to "]
        text = words.pick(rng, opening) + text
    if rng.random() < 0.2:
        text += words.pick(rng, [" for me", ", thanks", " to go on", " right away", " on the page"])
    if rng.random() < 0.07:
        text = f"{words.sentence(rng)} {text}"
    return text[:1].upper() + text[1:] + words.pick(rng, [".", ".", "", "!"])


def _named(item: Item) -> str:
    """How a thought calls an element: as its line ends."""
    return f"{item.name or item.kind} [{item.id}]"


def _alone(page: Page, item: Item) -> bool:
    """Whether no other element of the page is of its kind."""
    return sum(other.kind == item.kind for other in page) == 1


def _click(rng: np.random.Generator, page: Page, item: Item) -> Order:
    verb = words.pick(rng, ["click", "click on", "press", "open", "choose", "pick", "hit", "go to"])
    after = page
    if item.kind in ("checkbox", "radio"):
        verb = words.pick(rng, ["tick", "check", "mark", "click", "choose"])
        after = pages.put(page, replace(item, value="off" if item.value == "on" else "on"))
    name = quoted(rng, item.name)
    form = words.pick(
        rng, ["{n}", "{n}", "{n}", "the {n} {k}", "{n} {k}", "the {n}", "the {k} {n}"]
    )
    if rng.random() < 0.2:
        form = words.pick(
            rng, ["the {k} named {n}", "the element called {n}", "the {k} that says {n}"]
        )
    if rng.random() < 0.1 and _alone(page, item):
        form = "the {k}"
    return Order(
        f"{verb} {form.format(n=name, k=item.kind)}",
        f"click {_named(item)}",
        Action(ActionKind.CLICK, item.id),
        after,
        about=item.kind if form == "the {k}" else item.name,
    )


def _type(rng: np.random.Generator, page: Page, item: Item, value: str | None = None) -> Order:
    value = value or words.phrase(rng)
    if _alone(page, item) and (not item.name or rng.random() < 0.3):
        where = words.pick(rng, ["the field", "the box", "the text box", "the empty field"])
    elif item.name:
        where = words.pick(rng, ["{}", "the {} field", "the {} box", "the textbox {}"])
        where = where.format(quoted(rng, item.name))
    else:
        where = f"box {item.id}"
    form = words.pick(
        rng,
        [
            "type {v} in {w}",
            "write {v} into {w}",
            "fill {v} in {w}",
            "put {v} into {w}",
            "fill {w} with {v}",
            "give {w} the value {v}",
        ],
    )
    return Order(
        form.format(v=quoted(rng, value), w=where),
        f'type "{value}" in {_named(item)}',
        Action(ActionKind.TYPE, item.id, value),
        pages.put(page, replace(item, value=value)),
        about=value,
    )


def _select(rng: np.random.Generator, page: Page, item: Item) -> Order:
    option = words.pick(rng, list(item.options))
    if item.name and rng.random() < 0.7:
        where = f" in {quoted(rng, item.name)}"
    elif _alone(page, item):
        where = words.pick(rng, ["", " in the dropdown", " in the menu", " of the options"])
    else:
        where = f" in select {item.id}"
    form = words.pick(rng, ["pick {}", "set {}", "take {}", "change to {}"])
    return Order(
        form.format(quoted(rng, option)) + where,
        f'select "{option}" in {_named(item)}',
        Action(ActionKind.SELECT, item.id, option),
        pages.put(page, replace(item, value=option)),
        about=option,
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
        about=row.name,
    )
    return Exercise(_joined(rng, [asked.words]), ((page, asked),))
