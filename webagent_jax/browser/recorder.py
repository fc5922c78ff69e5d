"""Capture of a person's input in the tabs of a session, as actions of the agent.

The person's events do not reach the page. Each becomes an action with an id of the observation; the
caller executes it like an action of the agent. So the page is always in the state that the actions
lead to, and the observation before an action is the one that the agent would receive.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from webagent_jax.browser import keys
from webagent_jax.browser.session import Session
from webagent_jax.types import Action, ActionKind, Observation

_SCRIPT = resources.files("webagent_jax.browser").joinpath("recorder.js").read_text()
_BINDING = "__webagentRecord"  # function of the pages that reports actions


class Recorder:
    """Recorder of one session that has not opened a page yet.

    Args:
        session: session of the person's episode.
        on_actions: called on the thread of the browser with the actions of the person: at most one
            text or option, then a click or key. The recorder then stops listening.
    """

    def __init__(self, session: Session, on_actions: Callable[[Sequence[Action]], None]) -> None:
        self._session = session
        self._on_actions = on_actions
        session.with_page(self._install)

    def listen(self, observation: Observation, *, scrolls: bool) -> None:
        """Report the next actions of the person.

        Args:
            observation: current observation; actions refer to its elements.
            scrolls: whether a wheel event is an action; otherwise it scrolls the page directly,
                which does not change an observation of the whole page.
        """
        options = {"ids": [*observation.elements], "scrolls": scrolls}

        async def listen(page: Page) -> None:
            for number, other_page in enumerate(page.context.pages):
                # In another tab, a click only means that the person switched to it.
                tab = None if other_page is page else str(number)
                await _call(other_page, "listen", {**options, "tab": tab})

        self._session.with_page(listen)

    def stop(self) -> list[Action]:
        """Stop listening, and return the text that the person has typed but not completed."""

        async def stop(page: Page) -> list[Mapping[str, Any]]:
            return [action for actions in await _call(page, "stop") for action in actions]

        return [_action(fields) for fields in self._session.with_page(stop)]

    def allow_events(self, action: Action) -> None:
        """Let the page receive the events of an action, which the caller executes next."""
        budget = {"clicks": int(action.kind in _CLICKS), "keys": _keys_of(action)}

        async def allow_events(page: Page) -> None:
            await _call(page, "pass", budget)

        self._session.with_page(allow_events)

    def is_listening(self) -> bool:
        """Return whether the document still listens; a document that replaced it does not."""

        async def is_listening(page: Page) -> bool:
            return await page.evaluate("() => Boolean(window.__webagentRecorder?.isListening())")

        return self._session.with_page(is_listening)

    async def _install(self, page: Page) -> None:
        await page.context.expose_binding(_BINDING, self._receive)
        # Documents block the person's events from their start until `listen`.
        await page.context.add_init_script(_SCRIPT)

    def _receive(self, source: object, actions: Sequence[Mapping[str, Any]]) -> None:
        self._on_actions([_action(fields) for fields in actions])


_CLICKS = {ActionKind.CLICK, ActionKind.RIGHT_CLICK}


def _keys_of(action: Action) -> list[str]:
    """Return the keys that `act` presses for an action, as `KeyboardEvent.key`."""
    match action.kind:
        case ActionKind.TYPE:
            return [(action.value or "")[-1:] or "Delete"]
        case ActionKind.SEARCH:
            return [(action.value or "")[-1:] or "Delete", "Enter"]
        case ActionKind.PRESS_ENTER:
            return ["Enter"]
        case ActionKind.PRESS:
            names = keys.split_keys(keys.parse_key(action.value or ""))
            return [" " if name == "Space" else name for name in names]
    return []


def _action(fields: Mapping[str, Any]) -> Action:
    return Action(ActionKind(fields["kind"]), fields.get("element"), fields.get("value"))


async def _call(page: Page, function: str, argument: object = None) -> list[Any]:
    """Call a function of recorder.js in all frames of a page; return the results."""
    # Error pages have loaded without the script.
    call = f"() => {{ {_SCRIPT}\nreturn __webagentRecorder.{function}({json.dumps(argument)}); }}"
    results = []
    for frame in page.frames:
        # A frame may be removed, and a page may leave its document at any time.
        with contextlib.suppress(PlaywrightError):
            results.append(await frame.evaluate(call))
    return results
