"""Tables of SmolLM2-135M on MiniWoB++."""

from __future__ import annotations

from tools.results.behavior_cloning import decisions_and_success
from tools.results.formatting import gain_over, in_three_columns, interval, table_of
from tools.results.stored_runs import RUNS, Run, load_runs


def miniwob() -> str:
    """Return the table of decision accuracy and success of SmolLM2-135M on MiniWoB++."""
    return decisions_and_success(
        "miniwob", {"sampled": "success, temperature 1, %", "greedy": "greedy, %"}
    )


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


def miniwob_thoughts() -> str:
    """Return the table of BC with reasons in thoughts, against BC without, on the same episodes."""
    return _compare("miniwob/bc_50tasks", "miniwob/bc_reasons", "with reasons, %")


def miniwob_second_epoch() -> str:
    """Return the table of a second epoch of BC with reasons, against the first."""
    return _compare("miniwob/bc_reasons", "miniwob/bc_reasons_more", "second epoch, %")


def miniwob_second_epoch_rl() -> str:
    """Return the table of M-GRPO from two epochs of BC."""
    return _compare("miniwob/bc_reasons_more", "miniwob_reasons/grpo", "M-GRPO, %")


def miniwob_thoughts_tasks() -> str:
    """Return the table of sampled success by task of the two runs."""
    runs = [Run(RUNS / "miniwob" / name) for name in ("bc_50tasks", "bc_reasons")]
    rates = [run.evals["sampled"]["by_site"] for run in runs]
    return in_three_columns("task", [run.name for run in runs], rates)


def miniwob_second_thoughts() -> str:
    """Return the table of a second stage of BC with reasons, against the first without."""
    return _compare("miniwob/bc_50tasks", "miniwob_second/bc_reasons", "with reasons, %")


def _compare(baseline_path: str, candidate_path: str, label: str) -> str:
    baseline, run = Run(RUNS / baseline_path), Run(RUNS / candidate_path)
    rows = []
    for decoding in ("sampled", "greedy"):
        before, after = baseline.evals[decoding], run.evals[decoding]
        rows.append([decoding, interval(before), interval(after), gain_over(before, after)])
    header = ["decoding", f"`{baseline.name}`, %", label, "difference, paired"]
    return table_of(header, rows)
