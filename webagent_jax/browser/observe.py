"""Page -> Observation, in the format that the config asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from playwright.async_api import Page

from webagent_jax.browser import compact, webarena_lite
from webagent_jax.browser.dom_walk import Entry, walk
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Element, Observation

_CUTS = {"compact": compact.cut, "webarena_lite": webarena_lite.cut}


async def observe(
    page: Page, config: BrowserConfig, allows: Callable[[str], bool], tabs: Sequence[str] = ()
) -> Observation:
    """The page as text of at most `config.observation_chars`, and a bit for what was left out.

    `compact` tells the whole page, from the upper border of the viewport on where it does not fit;
    `webarena_lite` tells the viewport. Frames are told whose address `allows`. `tabs` are the
    titles of all tabs when there are several.
    """
    found = await walk(page, config, allows)
    lines, shown, complete = _CUTS[config.observation](found.entries, config.observation_chars)
    complete = complete and not found.stopped
    if not complete:
        rest = f"about {found.left} more elements" if found.left else "more of the page"
        lines.append(f"[cut here: {rest} left out; scroll to see other parts]")
    return Observation(
        text="\n".join([*tabs, *lines]),
        url=page.url,
        title=found.title,
        truncated=not complete,
        elements={entry["id"]: _element(entry) for entry in shown},
    )


def _element(entry: Entry) -> Element:
    x, y, width, height = entry["box"]
    return Element(entry["kind"], entry["name"], entry.get("value", ""), (x, y, width, height))
