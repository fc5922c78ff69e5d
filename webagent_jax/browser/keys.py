"""Keys that an agent may press, by their common names."""

from __future__ import annotations

import re
import string

_MODIFIERS = {"control": "Control", "ctrl": "Control", "shift": "Shift", "alt": "Alt"}
_KEYS = [
    *"Enter Tab Escape Space Backspace Delete Insert Home End PageUp PageDown".split(),
    *"ArrowUp ArrowDown ArrowLeft ArrowRight".split(),
]
_BY_NAME = {key.lower(): key for key in [*_KEYS, *(f"F{n}" for n in range(1, 13))]} | {
    "return": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
}
_SEPARATOR = re.compile(r"(?<=.)\+(?=.)")  # a plus at the end is a key
_CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)


def split_keys(combination: str) -> list[str]:
    """Return the keys of a combination such as "Control+a"."""
    return _SEPARATOR.split(combination)


def parse_key(words: str) -> str:
    """Return a key or a combination such as "ctrl+a" in Playwright's spelling.

    Raises:
        ValueError: not a key, or a key that pastes, because the episodes in one Chromium share its
            clipboard. The message is for the agent.
    """
    *modifier_names, name = split_keys("".join(words.split()))
    modifiers = [_MODIFIERS.get(modifier.lower(), "") for modifier in modifier_names]
    key = name if name in _CHARACTERS else _BY_NAME.get(name.lower(), "")
    if not key or not all(modifiers):
        raise ValueError(
            f"there is no key {words[:40]!r}; keys are single characters, F1 to F12, "
            f"{', '.join(_KEYS)}; Control+, Shift+ and Alt+ can stand before them"
        )
    if (key in "vV" and "Control" in modifiers) or (key == "Insert" and "Shift" in modifiers):
        raise ValueError("nothing can be pasted here; use Type")
    return "+".join([*modifiers, key])
