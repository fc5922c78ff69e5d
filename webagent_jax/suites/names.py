"""Suggestions for unknown names of tasks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_MAX_SUGGESTIONS = 3


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return "did you mean: a, b, c?" with the most similar names, or with the first ones."""
    matches = difflib.get_close_matches(name, names, n=_MAX_SUGGESTIONS)
    return f"did you mean: {', '.join(matches or names[:_MAX_SUGGESTIONS])}?"
