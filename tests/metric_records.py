"""Comparison of metrics.jsonl records of equal runs."""

from __future__ import annotations

TIMING_PREFIXES = ("seconds/", "utilization/", "engine/", "memory/", "browser/")
"""Prefixes of metrics that depend on timing, on engine batching or on restarts."""


def without_timings(record: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in record.items() if not name.startswith(TIMING_PREFIXES)}
