"""Kinds of products, read from the word list data/products.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from webagent_jax.arena import random_data


@dataclass(frozen=True, slots=True)
class ProductKind:
    """Kind of product, such as Frying Pan."""

    name: str
    min_dollars: int  # lowest price, dollars
    max_dollars: int  # highest price, dollars
    option_name: str
    option_values: str  # separated by ", "
    icon: str  # name of the icon


@dataclass(frozen=True, slots=True)
class Category:
    """Category of products, part of a department."""

    department: str
    name: str
    words: dict[str, list[str]]  # keys: brands, lines, icon, material, features, good, bad
    kinds: list[ProductKind]


def categories() -> Iterator[Category]:
    """Yield the categories in data/products.txt, in order."""
    department, category = "", None
    department_words: dict[str, list[str]] = {}
    for line in random_data.read_lines("products"):
        if line.startswith("== "):
            if category:
                yield category
            category = Category(department, line[3:], dict(department_words), [])
        elif line.startswith("= "):
            if category:
                yield category
            department, department_words, category = line[2:], {}, None
        elif line.startswith("- ") and category:
            name, dollars, option, *icon = line[2:].split(" | ")
            cheapest, dearest = dollars.split("-")
            option_name, values = option.split(": ")
            (icon_name,) = icon or category.words["icon"]
            category.kinds.append(
                ProductKind(name, int(cheapest), int(dearest), option_name, values, icon_name)
            )
        else:
            name, text = line.split(": ", 1)
            words = re.split(r"[;,] " if name in ("brands", "lines", "material") else "; ", text)
            (category.words if category else department_words)[name] = words
    if category:
        yield category
