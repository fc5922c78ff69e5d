"""What of a record of metrics.jsonl two runs of the same work share."""

from __future__ import annotations

TIMED = ("seconds/", "utilization/", "engine/", "memory/")
"""What depends on how fast the browsers were, and so on who met whom in the engine, or on what
happened to be played after a restart."""


def untimed(record: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in record.items() if not name.startswith(TIMED)}
