"""Tables of SmolLM2-135M on MiniWoB++."""

from __future__ import annotations

from tools.results.behavior_cloning import decisions_and_success
from tools.results.formatting import gain_over, interval, table_of
from tools.results.stored_runs import load_runs


def miniwob() -> str:
    """Return the table of decision accuracy and success of SmolLM2-135M on MiniWoB++."""
    return decisions_and_success("miniwob", {"sampled": "success, temperature 1, %"})


def miniwob_rl() -> str:
    """Return the table of M-GRPO from BC on MiniWoB++, on the same episodes."""
    runs = {run.name: run for run in load_runs("miniwob")}
    baseline = runs["bc_50tasks"].evals["sampled"]
    rows = [["bc_50tasks", runs["bc_50tasks"].commit, "", interval(baseline), ""]]
    for name, run in runs.items():
        if not name.startswith("grpo"):
            continue
        candidate = run.evals["sampled"]
        updates = str(len(run.metrics))
        rows.append(
            [name, run.commit, updates, interval(candidate), gain_over(baseline, candidate)]
        )
    header = ["run", "commit", "updates", "success, temperature 1, %", "minus BC, paired"]
    return table_of(header, rows)
