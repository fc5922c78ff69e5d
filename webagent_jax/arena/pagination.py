"""Lists with filters and several pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from webagent_jax.arena.site import RequestContext


class WhereClause:
    """SQL condition on the rows of a list, and the arguments of its placeholders."""

    def __init__(self) -> None:
        self.sql = "1"
        self.arguments: list[Any] = []

    def add(self, sql: str, *arguments: Any) -> None:
        """Require a further condition."""
        self.sql += f" AND {sql}"
        self.arguments += arguments

    def add_words(self, expression: str, query: str) -> None:
        """Require all words of `query`, at most ten, in any order.

        Args:
            expression: SQL expression of the text.
            query: words to require.
        """
        for word in query.lower().split()[:10]:
            self.add(f"instr(lower({expression}), ?)", word)


@dataclass(frozen=True, slots=True)
class Pagination:
    """Page of a list, for `macros.pagination`."""

    rows: Sequence[Any]
    total: int  # rows on all pages
    number: int  # number of this page, from 1
    size: int  # rows on a full page
    href: str  # URL of a page without its number: "/search?q=lamp&page="

    def url(self, number: int) -> str:
        """Return the URL of a page.

        The first page has no number, so that it has the same URL as before "Next" and "Previous",
        which evaluators compare.
        """
        if number > 1:
            return f"{self.href}{number}"
        return self.href.removesuffix("page=").rstrip("?&")

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """Position of the first row of this page, from 1; 0 if the list is empty."""
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last(self) -> int:
        """Position of the last row of this page."""
        return min(self.number * self.size, self.total)


def paginate(
    request: RequestContext,
    columns: str,
    from_clause: str,
    arguments: Sequence[Any] = (),
    *,
    size: int,
    order_arguments: Sequence[Any] = (),
) -> Pagination:
    """Return the page of `SELECT columns from_clause` that the query parameter `page` selects.

    A number past the end selects the last page.

    Args:
        request: request with the query parameters.
        columns: SQL of the columns.
        from_clause: SQL from FROM on, ORDER BY included.
        arguments: values of the placeholders in `from_clause` before ORDER BY.
        size: rows on a full page.
        order_arguments: values of the placeholders after ORDER BY.
    """
    # The order has no effect on the count.
    body = from_clause.rpartition(" ORDER BY ")[0] or from_clause
    (total,) = request.db.execute(f"SELECT count(*) {body}", arguments).fetchone()
    number = _page_number(request, total, size)
    rows = request.db.execute(
        f"SELECT {columns} {from_clause} LIMIT ? OFFSET ?",
        [*arguments, *order_arguments, size, (number - 1) * size],
    ).fetchall()
    return Pagination(rows, total, number, size, _page_href(request))


def paginate_rows(request: RequestContext, rows: Sequence[Any], *, size: int) -> Pagination:
    """Return the page of `rows` that the query parameter `page` selects."""
    number = _page_number(request, len(rows), size)
    page_rows = rows[(number - 1) * size : number * size]
    return Pagination(page_rows, len(rows), number, size, _page_href(request))


def _page_number(request: RequestContext, total: int, size: int) -> int:
    text = request.query.get("page", "1")
    # `int` raises ValueError for a number with thousands of digits.
    number = int(text) if text.isdecimal() and len(text) < 7 else 1
    return min(max(number, 1), max(1, -(-total // size)))


def _page_href(request: RequestContext) -> str:
    # Links keep the filters; the number of the page is appended last.
    parameters = [(key, value) for key, value in request.query.items() if key != "page" and value]
    return f"{request.path}?{urlencode([*parameters, ('page', '')])}"
