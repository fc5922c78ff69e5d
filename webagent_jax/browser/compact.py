"""Entries -> text in the `compact` format: one line per element to act on or run of text."""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.browser.dom_walk import Entry


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
