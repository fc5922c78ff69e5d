"""Entries -> text in the `webarena_lite` format: the viewport as nested tags, on one line."""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.browser.dom_walk import Entry


def cut(entries: Sequence[Entry], budget: int) -> tuple[list[str], list[Entry], bool]:
    """The tags that fit `budget`, the elements among them, and whether all fitted.

    What is open where the room ends is closed, so that the text stays well-formed.
    """
    words: list[str] = []
    open_tags: list[str] = []
    shown = []
    size = 0
    for entry in entries:
        if entry.get("close"):
            words.append(f"</{open_tags.pop()}>")
            continue
        size += len(entry["text"]) + len(f" </{entry['tag']}> ")
        if size > budget:
            break
        words.append(entry["text"])
        open_tags.append(entry["tag"])
        if "id" in entry:
            shown.append(entry)
    words += [f"</{tag}>" for tag in reversed(open_tags)]
    return [" ".join(words)] if words else [], shown, size <= budget
