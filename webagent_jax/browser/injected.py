"""The scripts that run inside every page, and how to call them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Frame, Page

from webagent_jax.browser import frames
from webagent_jax.types import InfraError

# Each builds on those before it; all share one scope.
_FILES = "watch describe pictures walk text compact webarena_lite frames act observe".split()
_ON_AN_ELEMENT = "locate prepareTyping choose scroll focusOn".split()  # given its id
_EXPORTS = [
    *"listensToPointer quiet observe".split(),
    *"frameNumbers numberFrame holds highestId outward".split(),
    *_ON_AN_ELEMENT,
]


def _source() -> str:
    folder = resources.files("webagent_jax.browser")
    parts = [folder.joinpath(f"{name}.js").read_text() for name in _FILES]
    exports = f"Object.defineProperty(window, '__webagent', {{value: {{{', '.join(_EXPORTS)}}}}});"
    return "if (!window.__webagent) (() => {\n" + "\n".join([*parts, exports]) + "\n})();"


INIT_SCRIPT = _source()
"""To run before any script of a page, so that no listener is missed."""

# Set apart by their words: Playwright has one class for all of its errors.
_NAVIGATED = (
    "Execution context was destroyed",
    "Cannot find context",
    "because of a navigation",
    "Frame was detached",
    "frame was detached",
)
_TRIES = 6


async def evaluate(page: Page | Frame, script: str, argument: Any, timeout: float) -> Any:
    """`page.evaluate`, again when the page navigates away under it. `timeout`: seconds a load."""
    for _ in range(_TRIES - 1):
        try:
            return await page.evaluate(script, argument)
        except PlaywrightError as error:
            if not any(words in str(error) for words in _NAVIGATED):
                raise
        await page.wait_for_load_state("domcontentloaded", timeout=timeout * 1000)
    return await page.evaluate(script, argument)


async def call(page: Page | Frame, function: str, *arguments: Any, timeout: float = 10.0) -> Any:
    """Calls one of the injected functions in `page`.

    A function that acts on an element is called in the frame that holds it. Documents that began
    without the scripts (an empty tab, an error page) are given them now.
    """
    if isinstance(page, Page) and function in _ON_AN_ELEMENT and len(page.frames) > 1:
        frame = await frames.holder(page, arguments[0])
        answer = await call(frame, function, *arguments, timeout=timeout)
        return await frames.outward(frame, answer) if "x" in answer else answer
    expression = (
        f"async a => window.__webagent ? {{got: await window.__webagent.{function}(...a)}} : null"
    )
    answer = await evaluate(page, expression, list(arguments), timeout)
    if answer is None:
        await evaluate(page, f"() => {{ {INIT_SCRIPT} }}", None, timeout)
        answer = await evaluate(page, expression, list(arguments), timeout)
    return answer["got"] if answer else None


async def call_json(
    page: Page | Frame, function: str, *arguments: Any, timeout: float = 10.0
) -> Any:
    """`call` for functions that answer in JSON, which crosses faster than nested values do.

    Raises InfraError where the page's scripts have broken the language that ours are written in.
    """
    text = await call(page, function, *arguments, timeout=timeout)
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise InfraError(f"the page broke {function}(): it answered {str(text)[:80]!r}") from error
