"""Tables and figures of the quickstart."""

from __future__ import annotations

from statistics import mean

from matplotlib.figure import Figure

from tools.results.formatting import (
    NAMES,
    finish_figure,
    gain_over,
    interval,
    percent,
    pooled,
    pooled_gain,
    table_of,
)
from tools.results.stored_runs import RUNS, STAGES, Evals, Json, Run, load_runs, read_jsonl


def quickstart(folder: str) -> str:
    """Return the table of the stages of the quickstart, with one row per run and one of all.

    Args:
        folder: folder of the runs in docs/results/.
    """
    runs = load_runs(folder)
    rows = []
    for run in runs:
        cells = [interval(run.summary[stage]) for stage in STAGES]
        difference = interval(run.summary["grpo_minus_bc"], "+")
        minutes = sum(run.summary["seconds"].values()) / 60
        seed = str(run.config["config"]["seed"])
        rows.append([run.commit, seed, *cells, difference, f"{minutes:.1f}"])
    stages = [[run.summary[stage] for run in runs] for stage in STAGES]
    rows.append(["", "all", *map(pooled, stages), pooled_gain(*stages[1:]), ""])
    header = ["commit", "seed", "base", "BC", "M-GRPO", "M-GRPO minus BC, paired", "minutes"]
    return table_of(header, rows)


def quickstart_evals(name: str) -> str:
    """Return the table of BC and M-GRPO of the quickstart in another evaluation.

    Args:
        name: suffix of the stored evaluations, such as "greedy".
    """
    runs = load_runs("quickstart")
    stages = [[run.evals[f"{stage}_{name}"] for run in runs] for stage in STAGES[1:]]
    rows = [
        [str(run.config["config"]["seed"]), *map(interval, pair), gain_over(*pair)]
        for run, *pair in zip(runs, *stages, strict=True)
    ]
    rows.append(["all", *map(pooled, stages), pooled_gain(*stages)])
    return table_of(["seed", "BC", "M-GRPO", "M-GRPO minus BC, paired"], rows)


def bc_and_grpo_evals() -> Evals:
    """Return the evaluations of BC and M-GRPO of the quickstart."""
    runs = load_runs("quickstart")
    return {
        "sampled": [[run.summary[stage] for run in runs] for stage in STAGES[1:]],
        "greedy": [[run.evals[f"{stage}_greedy"] for run in runs] for stage in STAGES[1:]],
    }


def quickstart_longer_bc() -> str:
    """Return the table of BC of the quickstart with twice the epochs."""
    longer_runs = load_runs("quickstart_longer_bc")
    rows = []
    for decoding, (bc, grpo) in bc_and_grpo_evals().items():
        longer = [run.evals[decoding] for run in longer_runs]
        by_seed = [[[one] for one in stages] for stages in zip(bc, longer, grpo, strict=True)]
        for seed, (short, long, after) in enumerate([*by_seed, [bc, longer, grpo]]):
            title = str(seed) if seed < len(by_seed) else "all"
            gains = [pooled_gain(short, long), pooled_gain(long, after)]
            rows.append([decoding, title, pooled(short), pooled(long), *gains])
    header = ["decoding", "seed", "BC, 40 epochs", "BC, 80 epochs"]
    return table_of([*header, "80 minus 40 epochs, paired", "M-GRPO minus 80 epochs"], rows)


def quickstart_task_rates() -> str:
    """Return the table of success by task, the mean over the seeds of the quickstart."""
    runs = load_runs("quickstart")
    # All seeds have the same number of episodes per task, so the mean of their rates is the rate.
    rates = {NAMES[stage]: [run.summary[stage]["by_site"] for run in runs] for stage in STAGES}
    rows = [
        [task, *(f"{100 * mean(rate[task] for rate in seeds):.0f}" for seeds in rates.values())]
        for task in rates["BC"][0]
    ]
    return table_of([f"success, % of {34 * len(runs)}", *rates], rows)


def two_demos_tasks() -> str:
    """Return the table of the success rates of the earlier quickstart by task."""
    runs = load_runs("quickstart_two_demos")
    columns = [(run, stage) for run in runs for stage in STAGES]
    header = ["success, % of 34", *(f"{NAMES[stage]}, {run.name}" for run, stage in columns)]
    sites = runs[0].summary["base"]["by_site"]
    rows = [
        [site, *(f"{100 * run.summary[stage]['by_site'][site]:.0f}" for run, stage in columns)]
        for site in sites
    ]
    return table_of(header, rows)


def quickstart_r1() -> str:
    """Return the table of R1, R1-Zero and the plain prompt on the quickstart."""
    zero, plain = load_runs("quickstart_zero"), load_runs("quickstart_plain")
    thinking = [Run(RUNS / "quickstart" / run.name).summary for run in zero]
    base, bc, grpo = ([one[stage] for one in thinking] for stage in STAGES)
    plain_base, plain_bc, plain_grpo = (
        [run.evals[stage] for run in plain] for stage in ("base", "bc", "grpo")
    )
    zero_grpo = [run.evals["grpo"] for run in zero]
    entries: list[tuple[str, list[Json], list[Json] | None, list[Json] | None]] = [
        ("base", base, None, None),
        ("R1-Zero: M-GRPO from the base", zero_grpo, base, grpo),
        ("BC", bc, base, None),
        ("R1: BC, then M-GRPO", grpo, bc, None),
        ("base, plain prompt", plain_base, None, base),
        ("BC, plain prompt", plain_bc, plain_base, bc),
        ("BC, then M-GRPO, plain prompt", plain_grpo, plain_bc, grpo),
    ]
    rows = [
        [
            name,
            *(percent(evaluation["success_rate"]) for evaluation in evaluations),
            pooled(evaluations),
            pooled_gain(start, evaluations) if start else "",
            pooled_gain(reference, evaluations) if reference else "",
        ]
        for name, evaluations, start, reference in entries
    ]
    header = ["success, % of 408", *(run.name.replace("seed", "seed ") for run in zero), "all"]
    return table_of([*header, "minus its start, paired", "minus R1, same stage, paired"], rows)


def quickstart_thoughts() -> str:
    """Return the table of short and long thoughts in demonstrations of the quickstart."""
    long, short = load_runs("quickstart_thoughts")
    bc, grpo = (long.evals[stage] for stage in STAGES[1:])
    rows = [
        ["short: next step", interval(short.evals["bc"]), "", ""],
        [
            "long: task, past steps, page, next step",
            interval(bc),
            interval(grpo),
            gain_over(bc, grpo),
        ],
        ["difference, paired", gain_over(short.evals["bc"], bc), "", ""],
    ]
    header = ["thoughts of the demonstrations", "BC", "M-GRPO (R1-CoT)", "M-GRPO minus BC, paired"]
    return table_of(header, rows)


def full_history() -> str:
    """Return the table of the quickstart with all pages in the prompts, against one page."""
    full = load_runs("quickstart_full_history")
    compressed = [Run(RUNS / "quickstart" / run.name).summary for run in full]
    rows = []
    for stage in STAGES[1:]:
        pairs = [(one[stage], run.evals[stage]) for one, run in zip(compressed, full, strict=True)]
        one_page, all_pages = ([pair[i] for pair in pairs] for i in range(2))
        for side, name in ((one_page, "current page"), (all_pages, "all pages")):
            rates = [percent(evaluation["success_rate"]) for evaluation in side]
            rows.append([f"{NAMES[stage]}, {name}", *rates, pooled(side), ""])
        rows[-1][-1] = pooled_gain(one_page, all_pages)
    header = ["success, % of 408", *(run.name.replace("seed", "seed ") for run in full)]
    return table_of([*header, "all", "minus current page, paired"], rows)


def full_history_tokens() -> str:
    """Return the table of tokens per training episode with all pages, against one page."""
    full = load_runs("quickstart_full_history")
    one_page = [read_jsonl(RUNS / "quickstart" / run.name / "grpo_metrics.jsonl") for run in full]
    rows = []
    for name, runs in (("current page", one_page), ("all pages", [run.metrics for run in full])):
        updates = [update for run in runs for update in run]
        episodes = sum(update["episodes/total"] for update in updates)
        prompt = sum(update["engine/prompt_tokens"] for update in updates) / episodes
        prefill = (
            sum(
                update["engine/prompt_tokens"] * update["engine/prefill_computed_fraction"]
                for update in updates
            )
            / episodes
        )
        sampled = sum(update["engine/sampled_tokens"] for update in updates) / episodes
        shared = mean(update["packing/shared_token_fraction"] for update in updates)
        cells = (prompt, prefill, sampled, (prompt + sampled) * (1 - shared))
        rows.append([name, *(f"{cell:.0f}" for cell in cells)])
    header = ["tokens per episode", "prompts", "computed by the engine", "sampled"]
    return table_of([*header, "in forest rows"], rows)


def turn_limits() -> str:
    """Return the table of success by turn limit of BC and M-GRPO."""
    limits = _turn_limits()
    rows = [[name, *map(interval, entries)] for name, entries in limits.items()]
    header = [str(entry["max_turns"]) for entry in next(iter(limits.values()))]
    return table_of(["success, %, by turn limit", *header], rows)


def turn_limit_curves() -> Figure:
    """Draw success by turn limit of BC and M-GRPO."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, entries in _turn_limits().items():
        turns = [entry["max_turns"] for entry in entries]
        rates = [100 * entry["success_rate"] for entry in entries]
        low, high = ([100 * entry["ci95"][side] for entry in entries] for side in range(2))
        axes.plot(turns, rates, marker="o", ms=3, label=name)
        axes.fill_between(turns, low, high, alpha=0.15)
    axes.set_ylim(0, 100)
    return finish_figure(figure, "turn limit", "success, %")


def _turn_limits() -> dict[str, list[Json]]:
    """Return the success by turn limit of BC and M-GRPO, of the one seed that has it."""
    (run,) = (run for run in load_runs("quickstart") if "grpo_turns" in run.evals)
    return {NAMES[stage]: run.evals[f"{stage}_turns"]["by_max_turns"] for stage in STAGES[1:]}
