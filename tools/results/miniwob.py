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
    first, second = _bc_without_and_with_reasons()
    rows = []
    for decoding in ("sampled", "greedy"):
        pair = [run.evals[decoding] for run in (first, second) if decoding in run.evals]
        if len(pair) == 2:
            rows.append([decoding, *map(interval, pair), gain_over(*pair)])
    header = ["decoding", f"`{first.name}`, %", f"`{second.name}`, %", "difference, paired"]
    return table_of(header, rows)


def miniwob_thoughts_tasks() -> str:
    """Return the table of sampled success by task of the two runs."""
    runs = _bc_without_and_with_reasons()
    rates = [run.evals["sampled"]["by_site"] for run in runs]
    return in_three_columns("task", [run.name for run in runs], rates)


def _bc_without_and_with_reasons() -> tuple[Run, Run]:
    return Run(RUNS / "miniwob" / "bc_50tasks"), Run(RUNS / "miniwob" / "bc_reasons")


def miniwob_second_thoughts() -> str:
    """Return the table of a second stage of BC with reasons, against stages without."""
    reasons = Run(RUNS / "miniwob_second" / "bc_reasons")
    rows = []
    for decoding, name, folder in (
        ("sampled", "`bc_50tasks`", "miniwob/bc_50tasks"),
        ("greedy", "second stage without reasons", "miniwob_second/bc"),
    ):
        before, after = Run(RUNS / folder).evals[decoding], reasons.evals[decoding]
        rows.append([decoding, name, interval(before), interval(after), gain_over(before, after)])
    header = ["decoding", "baseline", "success, %", "with reasons, %", "difference, paired"]
    return table_of(header, rows)
