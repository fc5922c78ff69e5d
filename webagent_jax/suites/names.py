"""Suggestions for unknown names of tasks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_MAX_SUGGESTIONS = 3


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return "did you mean: a, b, c?" with similar names, or else "valid names: ..."."""
    matches = difflib.get_close_matches(name, names, n=_MAX_SUGGESTIONS)
    if matches:
        return f"did you mean: {', '.join(matches)}?"
    if len(names) <= _MAX_SUGGESTIONS:
        return f"valid names: {', '.join(names)}"
    return f"valid names: {', '.join(names[:_MAX_SUGGESTIONS])}, ...; webagent list-tasks lists all"
