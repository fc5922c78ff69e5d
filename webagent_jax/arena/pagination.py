"""Lists that are narrowed, and that go on over several pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from webagent_jax.arena.site import Visit


class Condition:
    """What the rows of a list must be: SQL, and what its question marks stand for."""

    def __init__(self) -> None:
        self.sql = "1"
        self.arguments: list[Any] = []

    def add(self, sql: str, *arguments: Any) -> None:
        self.sql += f" AND {sql}"
        self.arguments += arguments

    def words(self, text: str, asked: str) -> None:
        """All words of `asked` are in the text, which is SQL, in any order."""
        for word in asked.lower().split()[:10]:
            self.add(f"instr(lower({text}), ?)", word)


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list, for `macros.pagination`."""

    rows: Sequence[sqlite3.Row]
    total: int  # rows on all pages
    number: int  # of this page, from 1
    size: int  # rows on a full page
    href: str  # of any page, without its number: "/search?q=lamp&page="

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """Position of the first row, from 1; 0 where there is none."""
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.number * self.size, self.total)


def listing(
    visit: Visit, columns: str, rest: str, arguments: Sequence[Any] = (), *, size: int
) -> Listing:
    """The page that `?page=` asks for of `SELECT columns rest`; `rest` ends with its ORDER BY.

    A page past the end is the last one.
    """
    body = rest.rpartition(" ORDER BY ")[0] or rest
    (total,) = visit.db.execute(f"SELECT count(*) {body}", arguments).fetchone()
    asked = visit.query.get("page", "1")
    number = int(asked) if asked.isdecimal() and len(asked) < 7 else 1
    number = min(max(number, 1), max(1, -(-total // size)))
    rows = visit.db.execute(
        f"SELECT {columns} {rest} LIMIT ? OFFSET ?", [*arguments, size, (number - 1) * size]
    ).fetchall()
    kept = [(key, value) for key, value in visit.query.items() if key != "page" and value]
    return Listing(rows, total, number, size, f"{visit.path}?{urlencode([*kept, ('page', '')])}")
