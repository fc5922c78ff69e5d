"""The kinds of products there are, read from the word list data/products.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from webagent_jax.arena import random_data


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product, such as Frying Pan."""

    name: str
    cheapest: int  # dollars
    dearest: int
    option_name: str
    option_values: str
    icon: str  # name of its picture


@dataclass(frozen=True, slots=True)
class Category:
    department: str
    name: str
    words: dict[str, list[str]]  # brands, lines, icon, material, features, good, bad
    kinds: list[Kind]


def categories() -> Iterator[Category]:
    """Of data/products.txt, in its order."""
    department, current = "", None
    general: dict[str, list[str]] = {}
    for line in random_data.lines("products"):
        if line.startswith("== "):
            if current:
                yield current
            current = Category(department, line[3:], dict(general), [])
        elif line.startswith("= "):
            if current:
                yield current
            department, general, current = line[2:], {}, None
        elif line.startswith("- ") and current:
            name, dollars, option, *icon = line[2:].split(" | ")
            cheapest, dearest = dollars.split("-")
            option_name, values = option.split(": ")
            (picture,) = icon or current.words["icon"]
            current.kinds.append(
                Kind(name, int(cheapest), int(dearest), option_name, values, picture)
            )
        else:
            name, text = line.split(": ", 1)
            words = re.split(r"[;,] " if name in ("brands", "lines", "material") else "; ", text)
            (current.words if current else general)[name] = words
    if current:
        yield current


def slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))
