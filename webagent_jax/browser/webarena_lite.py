"""Renderer of the `webarena_lite` format: the viewport as nested tags on one line."""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.browser.dom_walk import Entry


def render(entries: Sequence[Entry], budget: int) -> tuple[list[str], list[Entry], bool]:
    """Render entries as one line of at most `budget` characters.

    Tags that are open at the end of the budget are closed, so the text stays well-formed.

    Returns:
        The line (no line if nothing fits), its elements, and whether all entries fit.
    """
    words: list[str] = []
    open_tags: list[str] = []
    elements = []
    size = 0
    for entry in entries:
        if entry.get("close"):
            words.append(f"</{open_tags.pop()}>")
            continue
        # The closing tag is counted with its opening tag, so that it always fits.
        size += len(entry["text"]) + len(f" </{entry['tag']}> ")
        if size > budget:
            break
        words.append(entry["text"])
        open_tags.append(entry["tag"])
        if "id" in entry:
            elements.append(entry)
    words += [f"</{tag}>" for tag in reversed(open_tags)]
    return [" ".join(words)] if words else [], elements, size <= budget
