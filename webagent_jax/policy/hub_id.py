"""Ids of models of the Hugging Face Hub."""

from __future__ import annotations

import re

# OWNER/NAME, and a branch, tag or commit after @.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")


def is_hub_id(name: str) -> bool:
    """Return whether a policy path has the form of a Hub id, OWNER/NAME or OWNER/NAME@REVISION."""
    return _HUB_ID.fullmatch(name) is not None


def split(name: str) -> tuple[str, str | None]:
    """Return repository and revision of a Hub id; None is the default branch."""
    repo, _, revision = name.partition("@")
    return repo, revision or None
