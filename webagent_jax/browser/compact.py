"""Renderer of the `compact` format: one line per actionable element or run of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from webagent_jax.browser.dom_walk import Entry

# Text of a page that reads like a line of another meaning: an element, an error, a tab, the note of
# a cut page.
_FORGED_LINE = re.compile(
    r"(button|link|textbox|checkbox|radio|select|option|tab|slider|item)( .*)? \[\d+\]"
    r"(( =| \(| disabled| pressed).*)?"
    r"|Error: .*|\[tab \d+(, open)?\].*|\[cut here: .*"
)


def render(entries: Sequence[Entry], budget: int) -> tuple[list[str], list[Entry], bool]:
    """Render entries as lines of at most `budget` characters in total, line ends included.

    If not all entries fit, those above the viewport are left out.

    Returns:
        The lines, the elements among them, and whether all entries fit.
    """
    lines = [line(entry) for entry in entries]
    is_complete = sum(len(text) + 1 for text in lines) <= budget
    if not is_complete:
        # The part that the agent can see matters most; scrolling changes which part is shown.
        # Entries above the viewport can follow one in view, such as a fixed header.
        entries = [entry for entry in entries if not entry.get("above")]
        lines = [line(entry) for entry in entries]
        if lines and len(lines[0]) >= budget:
            lines[0] = f"{lines[0][: budget - 2]}…"  # otherwise the observation would be empty
    end = size = 0
    while end < len(lines) and size + len(lines[end]) + 1 <= budget:
        size += len(lines[end]) + 1
        end += 1
    return lines[:end], [entry for entry in entries[:end] if "id" in entry], is_complete


def line(entry: Entry) -> str:
    """Return one line of the `compact` format. A mark precedes text that reads like another line.

    The id follows the name. A small model learns to copy a name and the id after it far more easily
    than to look back from the name to an id before it.
    """
    if "text" in entry:
        text = str(entry["text"])
        return f"text {text}" if _FORGED_LINE.fullmatch(text) else text
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
    words += [state for state in ("disabled", "pressed") if entry.get(state)]
    return " ".join(words)
