"""Named random streams, and the word lists from which all data of the arena is composed.

Data and tasks are drawn one at a time, and Python's own generator is fast for single draws. Seeded
with text, it gives the same numbers in every Python version.
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


def random_stream(*names: object) -> random.Random:
    """Return a generator whose numbers depend only on its name, such as ("shop", "orders")."""
    return random.Random("/".join(map(str, names)))


@functools.cache
def read_lines(name: str) -> tuple[str, ...]:
    """Return the lines of data/NAME.txt, without blank lines and lines that begin with #."""
    text = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


@functools.cache
def read_json(name: str) -> Any:
    """Return the content of data/NAME.json. Do not modify it: all callers share the object."""
    return json.loads((_FOLDER / f"{name}.json").read_bytes())


class ZipfSampler:
    """Sampler of items by Zipf's law: few are frequent, most are rare; `rng` selects which."""

    def __init__(self, rng: random.Random, items: Sequence[T], exponent: float = 0.7) -> None:
        order = list(items)
        rng.shuffle(order)
        self._items: list[Any] = order
        # The shift by 3 makes the first ranks less dominant.
        weights = (1.0 / (rank + 3) ** exponent for rank in range(len(order)))
        self._cumulative_weights = list(itertools.accumulate(weights))

    def sample(self, rng: random.Random, count: int = 1) -> list[Any]:
        """Draw `count` items with replacement."""
        return rng.choices(self._items, cum_weights=self._cumulative_weights, k=count)
