"""Table of WebArena-Infinity."""

from __future__ import annotations

import json

from tools.results.formatting import gain_over, interval, percent, table_of
from tools.results.stored_runs import RUNS


def infinity(split: str) -> str:
    """Return the table of success on WebArena-Infinity, with one row per policy.

    Args:
        split: folder of the evaluations; those in it have the same episodes.
    """
    paths = sorted((RUNS / "infinity" / split).glob("*.json"))
    evaluations = {path.stem: json.loads(path.read_text()) for path in paths}
    start = evaluations["smollm2-135m-miniwob"]
    rows = []
    for name, evaluation in evaluations.items():
        row = [name, evaluation["commit"][:7], interval(evaluation)]
        row.append(gain_over(start, evaluation) if name.startswith("bc") else "")
        row += [f"{evaluation['mean_turns']:.1f}", percent(evaluation["parse_error_rate"])]
        rows.append(row)
    header = ["policy", "commit", "success, %", "minus initial policy, paired", "turns, mean"]
    return table_of([*header, "invalid responses, % of turns"], rows)
