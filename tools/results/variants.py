"""Tables and figures of options of M-GRPO against the quickstart."""

from __future__ import annotations

from matplotlib.figure import Figure

from tools.results.formatting import finish_figure, percent, pooled_gain, table_of
from tools.results.stored_runs import RUNS, Json, load_runs, read_jsonl

Variants = tuple[dict[str, dict[str, Json]], dict[str, list[list[Json]]]]
"""Evaluation by variant and seed; metrics of each run by variant."""


def load_variants(baseline: str, folder: str, default: str) -> Variants:
    """Return the evaluations and metrics of a quickstart and of other options of M-GRPO.

    Each folder in `folder` is a variant with one run per seed.

    Args:
        baseline: folder of the quickstart in docs/results/, with the runs of BC and the default.
        folder: folder of the variants in docs/results/.
        default: name of the M-GRPO runs in `baseline`.
    """
    variants = {
        f"`{path.name}`": {run.name: run for run in load_runs(f"{folder}/{path.name}") if run.evals}
        for path in sorted((RUNS / folder).iterdir())
    }
    # A variant may be stored before its evaluations.
    variants = {name: runs for name, runs in variants.items() if runs}
    seeds = sorted(set.union(*map(set, variants.values())))
    baselines = {run.name: run for run in load_runs(baseline) if run.name in seeds}
    evals = {
        "BC": {seed: baselines[seed].summary["bc"] for seed in seeds},
        default: {seed: baselines[seed].summary["grpo"] for seed in seeds},
    }
    metrics = {
        default: [read_jsonl(baselines[seed].folder / "grpo_metrics.jsonl") for seed in seeds]
    }
    for name, runs in variants.items():
        evals[name] = {seed: run.evals["sampled"] for seed, run in runs.items()}
        metrics[name] = [run.metrics for run in runs.values()]
    return evals, metrics


def variants_of(baseline: str, folder: str, default: str = "default") -> str:
    """Return the table of a quickstart with other options of M-GRPO.

    Differences are over the episodes of the seeds that both have, in pairs; without a run of a
    seed, its cell is empty. The arguments are those of `load_variants`.
    """
    evals, metrics = load_variants(baseline, folder, default)
    seeds = list(evals["BC"])

    # Differences to BC, to the default and to the options of the paper, where they ran.
    references = [name for name in ("BC", default, "`paper`") if name in evals]

    def gain_of(name: str, other: str) -> str:
        seeds_of_both = [seed for seed in evals[name] if seed in evals[other]]
        return pooled_gain(*([evals[one][seed] for seed in seeds_of_both] for one in (other, name)))

    rows = []
    for name, by_seed in evals.items():
        rates = {seed: evaluation["success_rate"] for seed, evaluation in by_seed.items()}
        row = [name, *(percent(rates[seed]) if seed in rates else "" for seed in seeds)]
        row.append(percent(sum(rates.values()) / len(rates)))
        if name == "BC":
            rows.append([*row, *[""] * (len(references) + 2)])
            continue
        updates = [update for run in metrics[name] for update in run]
        episodes = sum(update["episodes/total"] for update in updates) / len(rates)
        trained = sum(update["groups/kept_fraction"] for update in updates) / len(updates)
        row += ["" if name == other else gain_of(name, other) for other in references]
        rows.append([*row, f"{episodes:,.0f}", percent(trained)])
    header = ["success, % of 408", *(seed.replace("seed", "seed ") for seed in seeds), "mean"]
    header += [f"minus {name}, paired" for name in references]
    return table_of([*header, "episodes", "groups trained on, %"], rows)


def training_curves(baseline: str, folder: str, default: str = "default") -> Figure:
    """Draw the mean reward of training episodes over the seeds by the number of episodes so far.

    The arguments are those of `load_variants`.
    """
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    _, metrics = load_variants(baseline, folder, default)
    for number, (name, runs) in enumerate(metrics.items()):
        episodes, values = [0.0], []
        for lines in zip(*runs, strict=False):
            total = sum(line["episodes/total"] for line in lines) / len(lines)
            episodes.append(total + episodes[-1])
            values.append(100 * sum(line["reward"] for line in lines) / len(lines))
        # Each update has other tasks: the mean of five is readable.
        smooth = [sum(values[max(0, i - 4) : i + 1]) / min(i + 1, 5) for i in range(len(values))]
        style = {"color": "black", "lw": 2.5} if number == 0 else {"lw": 1.2}
        axes.plot(episodes[1:], smooth, label=name.strip("`"), **style)
    return finish_figure(figure, "episodes", "success in training, %, mean of 5 updates")
