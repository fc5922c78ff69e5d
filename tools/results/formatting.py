"""Markdown tables of rates and paired differences, and the style of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from matplotlib.figure import Figure
from scipy.stats import t as student_t

from tools.results.stored_runs import Json
from webagent_jax.tracking.statistics import Z95, bootstrap, paired_difference, wilson

NAMES = {"base": "base", "bc": "BC", "grpo": "M-GRPO"}
"""Name of each stage in tables."""


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float) -> str:
    """Return a fraction as percent with one decimal."""
    return f"{100 * value:.1f}"


def interval(stage: Json, sign: str = "") -> str:
    """Return a rate or difference in percent with its interval."""
    value = stage["success_rate" if "success_rate" in stage else "difference"]
    low, high = stage["ci95"]
    return f"{100 * value:{sign}.1f} ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"


def gain_over(baseline: Json, candidate: Json) -> str:
    """Return the difference of two evaluations of the same tasks, with its interval."""
    return pooled_gain([baseline], [candidate])


def pooled(evaluations: Sequence[Json]) -> str:
    """Return the success rate over the episodes of several evaluations, with its interval.

    With several evaluations of the same tasks, the interval is a bootstrap over tasks, because the
    episodes of one task are correlated.
    """
    rewards = _rewards_by_task(evaluations)
    rate = mean(reward for of_task in rewards.values() for reward in of_task)
    if len(evaluations) == 1:
        return interval({"success_rate": rate, "ci95": wilson(rate * len(rewards), len(rewards))})
    return interval({"success_rate": rate, "ci95": bootstrap([*map(mean, rewards.values())])})


def pooled_gain(baseline: Sequence[Json], candidate: Sequence[Json]) -> str:
    """Return the paired difference of evaluations of the same tasks over several seeds.

    With several seeds, the interval is normal over the mean differences of the tasks. It does not
    contain the variation of further training seeds.
    """
    if len(baseline) == 1:
        (old,), (new,) = baseline, candidate
        pairs = [(new["rewards"][task], reward) for task, reward in old["rewards"].items()]
        difference, ci95 = paired_difference(*zip(*pairs, strict=True))
        return interval({"difference": difference, "ci95": ci95}, "+")
    before, after = _rewards_by_task(baseline), _rewards_by_task(candidate)
    differences = [mean(after[task]) - mean(rewards) for task, rewards in before.items()]
    half = Z95 * stdev(differences) / len(differences) ** 0.5
    center = mean(differences)
    return interval({"difference": center, "ci95": (center - half, center + half)}, "+")


def gain_over_task_names(baseline: Sequence[Json], candidate: Sequence[Json]) -> tuple[int, str]:
    """Return the number of task names or templates, and the difference with its interval over them.

    The interval, Student's t over the mean differences of the names, is for other tasks of the same
    kind, where `pooled_gain` has that for new instances of these tasks.
    """
    before, after = _rewards_by_task(baseline), _rewards_by_task(candidate)
    by_name: dict[str, list[float]] = {}
    for task, rewards in before.items():
        # "miniwob/click-tab/1000000", "arena/shop/price/fresh-7-1"
        by_name.setdefault(task.rpartition("/")[0], []).append(mean(after[task]) - mean(rewards))
    differences = [*map(mean, by_name.values())]
    n = len(differences)
    half = student_t.ppf(0.975, n - 1) * stdev(differences) / n**0.5
    center = mean(differences)
    return n, interval({"difference": center, "ci95": (center - half, center + half)}, "+")


def _rewards_by_task(evaluations: Sequence[Json]) -> Mapping[str, Sequence[float]]:
    rewards: dict[str, list[float]] = {}
    for evaluation in evaluations:
        for task, reward in evaluation["rewards"].items():
            rewards.setdefault(task, []).append(reward)
    return rewards


def in_three_columns(label: str, names: Sequence[str], rates: Sequence[Mapping[str, float]]) -> str:
    """Return a table of rates in percent by key, with three keys per row."""
    cells = [[key, *(f"{100 * rate[key]:.0f}" for rate in rates)] for key in sorted(rates[0])]
    height = -(-len(cells) // 3)
    cells += [[""] * len(cells[0])] * (3 * height - len(cells))
    rows = [[*cells[i], *cells[i + height], *cells[i + 2 * height]] for i in range(height)]
    return table_of([label, *names] * 3, rows)


def finish_figure(figure: Figure, xlabel: str, ylabel: str) -> Figure:
    """Add labels and the legend beside the curves, and return the figure."""
    (axes,) = figure.axes
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
