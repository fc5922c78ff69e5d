"""What a task of the arena is made from: a template, and what one drawing of it fills in.

An evaluator specification is WebArena's own (`task_file`, `evaluators`), with a placeholder such as
`__SHOPPING__` where the address of a site belongs. It is put together from the parts below; what
several parts ask for must all hold.
"""

from __future__ import annotations

import datetime
import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from webagent_jax.arena.site import day
from webagent_jax.types import Expert, Observation

Kind = Literal["answer", "address", "page", "unachievable"]
"""What decides: an answer, the address where the agent stops, what pages say, that it cannot be."""

Data = Mapping[str, sqlite3.Connection]
"""The seed databases by name, to draw from and to compute answers by."""

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Instance:
    """One drawing of a template."""

    slots: Mapping[str, str]  # what its phrasings are filled with
    eval: Spec
    start: str = "/"  # path on the template's first site


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of task.

    The oracle is given the slots, as a reader of the intent has them, and the first page. It sees
    the site through observations alone: no answer is in the slots.
    """

    name: str  # "shop/order-total": its group, and what it is about
    sites: tuple[str, ...]  # WebArena's names; it starts at the first, others are open in tabs
    phrasings: tuple[str, ...]  # five or more, with the slots in braces
    draw: Callable[[Data, random.Random], Instance | None]  # None: that drawing made no good task
    oracle: Callable[[Mapping[str, str], Observation], Expert]

    @property
    def group(self) -> str:
        """The site it counts for; "across" when it needs several."""
        return self.name.partition("/")[0]


Oracle = Callable[[Mapping[str, str], Observation], Expert]


class Templates(list[Template]):
    """The templates of a site, collected by a decorator on their oracles."""

    def __init__(self, group: str, *sites: str) -> None:
        super().__init__()
        self._group, self._sites = group, sites

    def add(
        self, name: str, draw: Callable[[Data, random.Random], Instance | None], *phrasings: str
    ) -> Callable[[Oracle], Oracle]:
        def adding(oracle: Oracle) -> Oracle:
            self.append(Template(f"{self._group}/{name}", self._sites, phrasings, draw, oracle))
            return oracle

        return adding


def kind_of(spec: Spec) -> Kind:
    if "string_match" in spec["eval_types"]:
        return "unachievable" if spec["string_note"] else "answer"
    return "page" if "program_html" in spec["eval_types"] else "address"


# --- evaluators ----------------------------------------------------------------------------------


def answers(*wanted: str) -> Spec:
    """The answer must name each of these; alternatives are parted by " |OR| "."""
    return _spec("string_match", reference_answers={"must_include": list(wanted)})


def answer_is(wanted: str) -> Spec:
    """The answer must be this, but for case."""
    return _spec("string_match", reference_answers={"exact_match": wanted})


def unachievable(why: str) -> Spec:
    """The answer must be N/A."""
    spec = answer_is("N/A")
    spec["string_note"] = why
    return spec


def ends_at(*urls: str) -> Spec:
    """The agent must stop at one of these addresses: "__SHOPPING__/cart"."""
    return _spec("url_match", reference_url=" |OR| ".join(urls), url_note="EXACT")


def page_has(url: str, selector: str, *wanted: str) -> Spec:
    """What the elements of a selector say, all together, must include each of these.

    `url` is a page to open, or "last" for where the agent stopped.
    """
    texts = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"
    return _page(url, f"{texts}.join(' ; ')", {"must_include": list(wanted)})


def page_lists(url: str, selector: str, parts: str, *wanted: str) -> Spec:
    """Each line of a list is told by its parts, ", " between them: texts, or values of fields.

    `selector` finds the lines, `parts` what is told of each; every wanted line must be there.
    """
    line = (
        f"[...e.querySelectorAll({json.dumps(parts)})]"
        ".map((part) => part.value ?? part.innerText.trim()).join(', ')"
    )
    texts = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => {line})"
    return _page(url, f"{texts}.join(' ; ')", {"must_include": list(wanted)})


def page_is(url: str, selector: str, wanted: str) -> Spec:
    """What the elements of a selector say, joined by " ; ", must be exactly this."""
    texts = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText.trim())"
    return _page(url, f"{texts}.join(' ; ')", {"exact_match": wanted})


def field_has(selector: str, *wanted: str) -> Spec:
    """The value of a field of the page where the agent stopped must include each of these."""
    locator = f"document.querySelector({json.dumps(selector)}).value"
    return _page("last", locator, {"must_include": list(wanted)})


def both(*specs: Spec) -> Spec:
    """All of them must hold."""
    joined: Spec = {"eval_types": [], "string_note": ""}
    for spec in specs:
        types = [name for name in spec["eval_types"] if name not in joined["eval_types"]]
        joined["eval_types"] += types
        pages = [*joined.get("program_html", ()), *spec.get("program_html", ())]
        joined |= {key: value for key, value in spec.items() if key != "eval_types"}
        joined |= {"program_html": pages} if pages else {}
    return joined


def _spec(evaluator: str, **parts: Any) -> Spec:
    return {"eval_types": [evaluator], "string_note": "", **parts}


def _page(url: str, locator: str, contents: Mapping[str, Any]) -> Spec:
    target = {"url": url, "locator": locator, "prep_actions": [], "required_contents": contents}
    return _spec("program_html", program_html=[target])


def dates(iso: str) -> str:
    """A day in the ways an answer may write it, as one reference."""
    date = datetime.date.fromisoformat(iso[:10])
    american = f"{date.month}/{date.day}/{date.year}"
    return " |OR| ".join((day(iso), f"{date:%B} {date.day}, {date.year}", american, iso[:10]))


def pick(rng: random.Random, rows: Sequence[Any]) -> Any:
    """One of the rows; None of none."""
    return rng.choice(rows) if rows else None
