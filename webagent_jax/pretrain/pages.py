"""Generated pages in the format of the `compact` observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.pretrain import words

_KINDS = ("button", "link", "textbox", "checkbox", "radio", "select", "item", "tab", "option")
# Probabilities of `_KINDS` on a page of mixed kinds.
_WEIGHTS = np.array([0.22, 0.22, 0.16, 0.14, 0.06, 0.06, 0.06, 0.04, 0.04])


@dataclass(frozen=True)
class Item:
    """Line of a page: text, a table row, or an element with an id."""

    kind: str  # "text", "row" or an element kind
    name: str  # text, left cell of a row, or name of the element
    id: str = ""  # element id; empty for text and rows
    value: str = ""  # value of a field, "on" or "off" of a box, right cell of a row
    options: tuple[str, ...] = ()  # options of a select

    def line(self) -> str:
        """Return the line of the observation."""
        match self.kind:
            case "text":
                return self.name
            case "row":
                return f"{self.name} | {self.value}"
            case "checkbox" | "radio":
                return f"{self.kind} {self.value} {self.name} [{self.id}]"
        line = " ".join(filter(None, (self.kind, self.name, f"[{self.id}]")))
        if self.value:
            line += f" = {self.value}"
        return f"{line} ({', '.join(self.options)})" if self.options else line


Page = tuple[Item, ...]


def text(page: Page) -> str:
    """Return the text of the observation."""
    return "\n".join(item.line() for item in page)


def elements(page: Page) -> list[Item]:
    """Return the items that have an id."""
    return [item for item in page if item.id]


def put(page: Page, replacement: Item) -> Page:
    """Return the page with `replacement` in place of the item with its id."""
    return tuple(replacement if item.id == replacement.id else item for item in page)


def generate(rng: np.random.Generator, max_elements: int = 14) -> Page:
    """Generate a page of 2 to `max_elements` elements with distinct names; some have no name."""
    count = int(rng.integers(2, max_elements + 1))
    names = _distinct_phrases(rng, count)
    # Lists, menus and forms consist mostly of one kind.
    if rng.random() < 0.3:
        kinds = [words.pick(rng, _KINDS) if rng.random() < 0.2 else None for _ in range(count)]
        default = words.pick(rng, _KINDS)
        kinds = [kind or default for kind in kinds]
    else:
        kinds = list(rng.choice(_KINDS, count, p=_WEIGHTS))
    items = []
    for kind, name in zip(kinds, names, strict=True):
        if rng.random() < 0.15:
            items.append(Item("text", words.sentence(rng)))
        if rng.random() < 0.1:
            items.append(Item("row", words.phrase(rng), value=words.phrase(rng)))
        items.append(_element(rng, str(kind), name))
    return number(rng, items)


def number(rng: np.random.Generator, items: Sequence[Item]) -> Page:
    """Assign ids in document order; sometimes with the gaps and jumps of dynamic pages."""
    count = sum(item.kind not in ("text", "row") for item in items)
    ids = list(range(1, count + 1))
    # 25 % with gaps, 15 % with a jump, 10 % in random order, 50 % consecutive from 1.
    form = rng.random()
    if form < 0.25:
        ids = sorted(rng.choice(np.arange(1, 3 * count + 4), count, replace=False).tolist())
    elif form < 0.4:
        gap_start = int(rng.integers(0, count + 1))
        start = int(rng.integers(1, 60))
        ids = [*ids[:gap_start], *range(gap_start + start, count + start)]
    elif form < 0.5:
        ids = rng.permutation(ids).tolist()
    id_iterator = iter(ids)
    return tuple(
        item if item.kind in ("text", "row") else replace(item, id=str(next(id_iterator)))
        for item in items
    )


def _element(rng: np.random.Generator, kind: str, name: str) -> Item:
    if kind == "textbox":
        # Instructions name these fields by their kind or id.
        is_nameless = rng.random() < 0.25
        value = words.phrase(rng) if rng.random() < 0.2 else ""
        return Item(kind, "" if is_nameless else name, value=value)
    if kind in ("checkbox", "radio"):
        return Item(kind, name, value="on" if rng.random() < 0.2 else "off")
    if kind == "select":
        options = tuple(_distinct_phrases(rng, int(rng.integers(2, 7))))
        return Item(kind, name if rng.random() < 0.6 else "", value=options[0], options=options)
    return Item(kind, name)


def _distinct_phrases(rng: np.random.Generator, count: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names[words.phrase(rng)] = None
    return list(names)
