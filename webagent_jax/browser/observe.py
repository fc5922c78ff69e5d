"""Page -> Observation, in the `compact` format: one line per element to act on or run of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from playwright.async_api import Page

from webagent_jax.browser import injected
from webagent_jax.types import Element, Observation

_WALK_NODES = 20_000  # elements looked at per observation, at most
_WALK_MILLISECONDS = 3000  # a last resort: what is seen must not depend on how busy the machine is

Entry = Mapping[str, Any]
"""What observe.js tells of one element or one run of text."""


async def observe(page: Page, budget: int, tabs: Sequence[str] = ()) -> Observation:
    """The whole page as text of at most `budget` characters, and a bit for what was left out.

    A page that does not fit is told from the upper border of the viewport on, so that scrolling
    shows the rest of it. `tabs` are the titles of all tabs when there are several.
    """
    limits = {"chars": budget, "nodes": _WALK_NODES, "millis": _WALK_MILLISECONDS}
    found = await injected.call_json(page, "observe", limits)
    lines, shown, complete = cut(found["entries"], budget)
    complete = complete and not found["stopped"]
    if not complete:
        left = max(found["total"] - found["seen"], 0)
        rest = f"about {left} more elements" if left else "more of the page"
        lines.append(f"[cut here: {rest} left out; scroll to see other parts]")
    return Observation(
        text="\n".join([*tabs, *lines]),
        url=page.url,
        title=found["title"],
        truncated=not complete,
        elements={entry["id"]: _element(entry) for entry in shown},
    )


def cut(entries: Sequence[Entry], budget: int) -> tuple[list[str], list[Entry], bool]:
    """Lines that fit `budget`, the elements among them, and whether all fitted."""
    lines = [line(entry) for entry in entries]
    start = 0
    if sum(len(text) + 1 for text in lines) > budget:
        start = next((i for i, entry in enumerate(entries) if not entry.get("above")), 0)
    end, size = start, 0
    while end < len(lines) and size + len(lines[end]) + 1 <= budget:
        size += len(lines[end]) + 1
        end += 1
    shown = [entry for entry in entries[start:end] if "id" in entry]
    return lines[start:end], shown, (start, end) == (0, len(lines))


def line(entry: Entry) -> str:
    """One line of the `compact` format.

    The id stands behind the name: whoever copies the name is led to the id by what follows it,
    which small models find much easier than looking back from the name to an id before it.
    """
    if "text" in entry:
        return str(entry["text"])
    kind, name, value = entry["kind"], entry["name"], entry.get("value", "")
    words = [kind]
    if kind in ("checkbox", "radio"):
        words.append(value)
    if name:
        words.append(name)
    words.append(f"[{entry['id']}]")
    if kind not in ("checkbox", "radio") and value:
        words += ["=", value]
    if "options" in entry:
        words.append(f"({', '.join(entry['options'])})")
    if entry.get("disabled"):
        words.append("disabled")
    return " ".join(words)


def _element(entry: Entry) -> Element:
    x, y, width, height = entry["box"]
    return Element(entry["kind"], entry["name"], entry.get("value", ""), (x, y, width, height))
