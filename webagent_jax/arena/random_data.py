"""Named streams of randomness, and the lists of words all data of the arena is composed from.

Data and tasks are drawn one by one, so the streams are Python's own: quick for single draws, and
seeded by text they give the same numbers under every version.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_FOLDER = Path(__file__).parent / "data"


def stream(*names: object) -> random.Random:
    """The stream of a name such as ("shop", "orders"): the same wherever it is asked for."""
    return random.Random("/".join(map(str, names)))


@functools.cache
def lines(name: str) -> tuple[str, ...]:
    """Of data/NAME.txt, without blank lines and those that begin with #."""
    text = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    stripped = (line.strip() for line in text.splitlines())
    return tuple(line for line in stripped if line and not line.startswith("#"))


@functools.cache
def table(name: str) -> Any:
    """The content of data/NAME.json. Not to be changed: everybody gets the same object."""
    return json.loads((_FOLDER / f"{name}.json").read_bytes())


class Popularity:
    """Draws items by Zipf's law: few are everywhere, most are rare. Which ones, the stream says."""

    def __init__(self, rng: random.Random, items: Sequence[T], exponent: float = 0.7) -> None:
        order = list(items)
        rng.shuffle(order)
        self._items: list[Any] = order
        weights = (1.0 / (rank + 3) ** exponent for rank in range(len(order)))
        self._cumulative = list(itertools.accumulate(weights))

    def draw(self, rng: random.Random, count: int = 1) -> list[Any]:
        """So many items; some may be the same."""
        return rng.choices(self._items, cum_weights=self._cumulative, k=count)
