"""Tables of SmolLM2-135M on MiniWoB++."""

from __future__ import annotations

from collections.abc import Mapping

from tools.results.behavior_cloning import decisions_and_success
from tools.results.formatting import gain_over, in_three_columns, interval, table_of
from tools.results.stored_runs import RUNS, Run, load_runs

_THIRD_EPOCH = {"miniwob/bc_reasons_third": "third epoch, %"}
# Titles of the runs of M-GRPO from two epochs of BC, by folder.
_SECOND_EPOCH_RL = {
    "miniwob_reasons/grpo": "learning rate 3e-4, %",
    "miniwob_reasons/grpo_learning_rate_2e-4": "learning rate 2e-4, %",
}


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
    return _compare("miniwob/bc_50tasks", {"miniwob/bc_reasons": "with reasons, %"})


def miniwob_second_epoch() -> str:
    """Return the table of a second epoch of BC with reasons, against the first."""
    return _compare("miniwob/bc_reasons", {"miniwob/bc_reasons_more": "second epoch, %"})


def miniwob_third_epoch() -> str:
    """Return the table of a third epoch of BC with reasons, against the second."""
    return _compare("miniwob/bc_reasons_more", _THIRD_EPOCH)


def miniwob_second_epoch_rl() -> str:
    """Return the table of M-GRPO from two epochs of BC, with two learning rates."""
    return _compare("miniwob/bc_reasons_more", _SECOND_EPOCH_RL)


def miniwob_second_epoch_rl_trained() -> str:
    """Return the same table for further held-out episodes of the tasks that M-GRPO trains on."""
    runs = _THIRD_EPOCH | _SECOND_EPOCH_RL
    return _compare("miniwob/bc_reasons_more", runs, prefix="trained_")


def miniwob_thoughts_tasks() -> str:
    """Return the table of sampled success by task of the two runs."""
    runs = [Run(RUNS / "miniwob" / name) for name in ("bc_50tasks", "bc_reasons")]
    rates = [run.evals["sampled"]["by_site"] for run in runs]
    return in_three_columns("task", [run.name for run in runs], rates)


def miniwob_second_thoughts() -> str:
    """Return the table of a second stage of BC with reasons, against the first without."""
    return _compare("miniwob/bc_50tasks", {"miniwob_second/bc_reasons": "with reasons, %"})


def _compare(baseline_path: str, titles: Mapping[str, str], prefix: str = "") -> str:
    """Return the table of a run and of others on the same episodes, sampled and greedy.

    Args:
        baseline_path: folder of the run in docs/results/.
        titles: titles of the others by folder; a folder without these evaluations is omitted.
        prefix: beginning of the names of the evaluations.
    """
    baseline = Run(RUNS / baseline_path)
    runs = {title: Run(RUNS / path) for path, title in titles.items()}
    runs = {title: run for title, run in runs.items() if f"{prefix}greedy" in run.evals}
    header = ["decoding", f"`{baseline.name}`, %"]
    for title in runs:
        header += [title, "difference, paired"]
    rows = []
    for decoding in ("sampled", "greedy"):
        old = baseline.evals[prefix + decoding]
        row = [decoding, interval(old)]
        for run in runs.values():
            new = run.evals[prefix + decoding]
            row += [interval(new), gain_over(old, new)]
        rows.append(row)
    return table_of(header, rows)
