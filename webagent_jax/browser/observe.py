"""Observation of a page in the configured format."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from playwright.async_api import Page

from webagent_jax.browser import compact, webarena_lite
from webagent_jax.browser.dom_walk import Entry, walk
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Element, Observation

_RENDERERS = {"compact": compact.render, "webarena_lite": webarena_lite.render}


async def observe(
    page: Page, config: BrowserConfig, allows: Callable[[str], bool], tabs: Sequence[str] = ()
) -> Observation:
    """Return the page as text of at most `config.max_observation_chars`, plus a note if it is cut.

    `compact` contains the whole page, or the part from the upper border of the viewport on if the
    page does not fit. `webarena_lite` contains the viewport.

    Args:
        page: page to observe.
        config: observation format and limits.
        allows: returns whether frames with this address are part of the observation.
        tabs: titles of all tabs if there are several.

    Raises:
        Exception: values are malformed, because the page replaced built-in functions.
    """
    traversal = await walk(page, config, allows)
    lines, elements, is_complete = _RENDERERS[config.observation_format](
        traversal.entries, config.max_observation_chars
    )
    is_complete = is_complete and not traversal.has_stopped
    if not is_complete:
        rest = (
            f"about {traversal.num_skipped} more elements"
            if traversal.num_skipped
            else "more of the page"
        )
        lines.append(f"[cut here: {rest} left out; scroll to see other parts]")
    return Observation(
        # Tabs and the note come on top of the character limit.
        text="\n".join([*tabs, *lines]),
        url=page.url,
        title=traversal.title,
        truncated=not is_complete,
        elements={entry["id"]: _element(entry) for entry in elements},
    )


def _element(entry: Entry) -> Element:
    # A hostile page may return any JSON; an error here ends its episode.
    x, y, width, height = map(float, entry["box"])
    if not all(map(math.isfinite, (x, y, width, height))):
        raise ValueError(f"box {entry['box']} of an element")
    kind, name, value = str(entry["kind"]), str(entry["name"]), str(entry.get("value", ""))
    return Element(kind, name, value, (x, y, width, height))
