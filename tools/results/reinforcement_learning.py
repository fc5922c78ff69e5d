"""Tables of BC and M-GRPO on the same episodes."""

from __future__ import annotations

from collections.abc import Mapping

from tools.results.formatting import NAMES, gain_over, in_three_columns, interval, table_of
from tools.results.stored_runs import RUNS, STAGES, Run, load_runs


def bc_and_grpo(folder: str) -> str:
    """Return the table of BC and M-GRPO, sampled and greedy, in pairs.

    Args:
        folder: folder of the two runs in docs/results/; both have the same evaluations.
    """
    runs = {run.name: run for run in load_runs(folder)}
    rows = []
    for title, name in {"temperature 1": "sampled", "greedy": "greedy"}.items():
        if name not in runs["bc"].evals:
            continue
        baseline, candidate = (runs[run].evals[name] for run in STAGES[1:])
        rows.append(
            [title, interval(baseline), interval(candidate), gain_over(baseline, candidate)]
        )
    header = [f"success, % of {baseline['n']}", "BC", "M-GRPO", "M-GRPO minus BC, paired"]
    return table_of(header, rows)


def runs_from(
    folder: str, titles: Mapping[str, str], other_starts: Mapping[str, str | None] | None = None
) -> str:
    """Return the table of a policy and of runs that start from it, sampled and greedy.

    Args:
        folder: folder of the runs in docs/results/.
        titles: title of each run by name; the first is the policy that the others start from.
        other_starts: name of the run that a run starts from, if it is not the first; None for
            other policies without a gain.
    """
    runs = {run.name: run for run in load_runs(folder)}
    first = next(iter(titles))
    starts = dict.fromkeys(titles, first) | {first: None} | dict(other_starts or {})
    rows = []
    for name, title in titles.items():
        start = starts[name]
        cells = []
        for kind in ("sampled", "greedy"):
            evaluation = runs[name].evals.get(kind)
            if not evaluation:
                cells += ["", ""]
                continue
            gain = gain_over(runs[start].evals[kind], evaluation) if start else ""
            cells += [interval(evaluation), gain]
        rows.append([title, runs[name].commit, *cells])
    baseline = runs[first].evals["sampled"]
    minus = f"minus {titles[first]}, paired"
    header = [f"success, % of {baseline['n']}", "commit", "temperature 1", minus, "greedy", minus]
    return table_of(header, rows)


def updates_of(folder: str) -> str:
    """Return the table of success and groups by update of M-GRPO, with updates as columns.

    Args:
        folder: folder of the run in docs/results/.
    """
    records = Run(RUNS / folder).metrics
    metrics = {
        "success, %": "reward",
        "truncated episodes, %": "episodes/truncated_fraction",
        "groups with both outcomes, %": "groups/kept_fraction",
    }
    rows = [
        [title, *(f"{100 * record[name]:.0f}" for record in records)]
        for title, name in metrics.items()
    ]
    return table_of(["update", *(str(record["update"]) for record in records)], rows)


def task_rates(folder: str, *names: str, evaluation: str = "sampled") -> str:
    """Return the table of success by task of the named runs, with three tasks per row."""
    runs = [run for run in load_runs(folder) if run.name in names]
    rates = [run.evals[evaluation]["by_site"] for run in runs]
    return in_three_columns("task", [NAMES[run.name.partition("_")[0]] for run in runs], rates)
