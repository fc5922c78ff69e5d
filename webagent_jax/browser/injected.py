"""Scripts that run inside every page, and calls of their functions."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Frame, Page

from webagent_jax.browser import frames
from webagent_jax.types import InfraError

# In order of dependency; all files share one scope.
_FILES = [
    *"instrument describe visibility graphics identity dom_walk text".split(),
    *"compact webarena_lite frames scroll act observe".split(),
]
# These take an element id.
_ELEMENT_FUNCTIONS = "locate prepareTyping resumeTyping choose scroll focusOn".split()
_EXPORTS = [
    *"listensToPointer hasPendingCalls animationTime quiet observe".split(),
    *"frameNumbers numberFrame hasElement highestId idOf toParentCoordinates".split(),
    *_ELEMENT_FUNCTIONS,
]


def _source() -> str:
    folder = resources.files("webagent_jax.browser")
    parts = [folder.joinpath(f"{name}.js").read_text() for name in _FILES]
    exports = f"Object.defineProperty(window, '__webagent', {{value: {{{', '.join(_EXPORTS)}}}}});"
    # The condition makes repeated injection harmless; a second run would lose ids and listeners.
    return "if (!window.__webagent) (() => {\n" + "\n".join([*parts, exports]) + "\n})();"


INIT_SCRIPT = _source()
"""JavaScript to run before the scripts of a page, so that it records all their listeners."""

# Playwright has one class for all its errors, so these are identified by their messages.
_NAVIGATION_ERRORS = (
    "Execution context was destroyed",
    "Cannot find context",
    "because of a navigation",
    "Frame was detached",
    "frame was detached",
)
_MAX_TRIES = 6


def is_navigation_error(error: PlaywrightError) -> bool:
    """Return whether a call failed because the page or frame navigated."""
    return any(words in str(error) for words in _NAVIGATION_ERRORS)


async def evaluate(page: Page | Frame, script: str, argument: Any, timeout: float) -> Any:
    """Evaluate a script in the page, and run it again if the page navigates.

    Args:
        page: page or frame.
        script: JavaScript expression or function.
        argument: argument of the function.
        timeout: seconds to wait for each navigation.
    """
    for _ in range(_MAX_TRIES - 1):
        try:
            return await page.evaluate(script, argument)
        except PlaywrightError as error:
            if not is_navigation_error(error):
                raise
        # The script ran in a document that is gone; it runs again in the next one.
        await page.wait_for_load_state("domcontentloaded", timeout=timeout * 1000)
    return await page.evaluate(script, argument)


async def call(page: Page | Frame, function: str, *arguments: Any, timeout: float = 10.0) -> Any:
    """Call one of the injected functions in `page`.

    A function that acts on an element runs in the frame of the element. Documents that loaded
    without the scripts (an empty tab, an error page) receive them first.

    Args:
        page: page or frame.
        function: name of an exported function.
        arguments: arguments of the function, as JSON values.
        timeout: seconds to wait for a navigation.

    Raises:
        InfraError: the document was replaced each time before the function ran.
    """
    if isinstance(page, Page) and function in _ELEMENT_FUNCTIONS and len(page.frames) > 1:
        # 1. Find the frame of the element, and convert the result to page coordinates.
        frame = await frames.frame_of_element(page, arguments[0])
        result = await call(frame, function, *arguments, timeout=timeout)
        return await frames.to_page_coordinates(frame, result) if "x" in result else result
    # 2. Call the function. The object distinguishes a result of null from missing scripts.
    expression = (
        f"async a => window.__webagent ? {{got: await window.__webagent.{function}(...a)}} : null"
    )
    result = await evaluate(page, expression, list(arguments), timeout)
    if result is None:
        # 3. Inject the missing scripts and call again.
        await evaluate(page, f"() => {{ {INIT_SCRIPT} }}", None, timeout)
        result = await evaluate(page, expression, list(arguments), timeout)
    if result is None:
        raise InfraError(f"the page was replaced before {function}() ran")
    return result["got"]


async def call_json(page: Page | Frame, function: str, *arguments: Any) -> Any:
    """Call an injected function that returns JSON text, which is faster than nested values.

    Args:
        page: page or frame.
        function: name of an exported function.
        arguments: arguments of the function, as JSON values.

    Raises:
        InfraError: the page was replaced.
        Exception: the page replaced JSON.stringify.
    """
    text = await call(page, function, *arguments)
    return json.loads(text) if text else None
