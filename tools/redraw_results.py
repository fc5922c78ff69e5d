"""Redraw the tables and figures of README.md and docs/ from the runs in docs/results/.

python tools/redraw_results.py          # rewrite them
python tools/redraw_results.py --check  # exit with 1 if a table differs from its runs
python tools/redraw_results.py --store=WORKDIR --as=quickstart/seed0  # store a run first
python tools/redraw_results.py --store=WORKDIR --as=arena_shop/bc_308/eval_greedy  # an evaluation

A stored run is a folder with the small files of a workdir. A training run has config.json and
metrics.jsonl, and eval_NAME.json for an evaluation of its policy; a quickstart has config.json,
summary.json and the metrics of BC and M-GRPO. The stored summary contains only rates and the reward
of each episode. A table is the text between `<!-- table: NAME -->` and `<!-- end of table -->` of a
page.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from webagent_jax.tracking.statistics import paired_difference, wilson  # noqa: E402

DOCS = ROOT / "docs"
RUNS = DOCS / "results"
PAGES = (ROOT / "README.md", DOCS / "results.md", DOCS / "lab_log.md", DOCS / "infinity.md")

EVAL_FIELDS = ("commit", "by_outcome", "mean_turns", "parse_error_rate", "invalid_action_rate")
STAGES = ("base", "bc", "grpo")
NAMES = {"base": "base", "bc": "BC", "grpo": "M-GRPO"}

Json = dict[str, Any]


class Run:
    """Stored files of one run.

    Args:
        folder: folder of the run in docs/results/.
    """

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = folder.name, folder
        self.config: Json = json.loads((folder / "config.json").read_text())
        self.metrics = _read_jsonl(folder / "metrics.jsonl")
        self.evals: dict[str, Json] = {
            path.stem.removeprefix("eval_"): json.loads(path.read_text())
            for path in sorted(folder.glob("eval_*.json"))
        }
        summary = folder / "summary.json"
        self.summary: Json = json.loads(summary.read_text()) if summary.exists() else {}

    @property
    def commit(self) -> str:
        """Short hash of the commit of the run."""
        return str(self.config.get("commit", "unknown"))[:7]

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """Return the steps with a value of the metric, and the values."""
        pairs = [(line["update"], line[metric]) for line in self.metrics if metric in line]
        return [step for step, _ in pairs], [value for _, value in pairs]


def _read_jsonl(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def store(workdir: Path, folder: Path) -> None:
    """Copy the small files of a training run or a quickstart to a folder.

    An evaluation becomes one file, `folder` with the suffix .json.
    """
    if (workdir / "eval.json").exists():
        evaluation = json.loads((workdir / "eval.json").read_text())
        stored = {name: evaluation[name] for name in EVAL_FIELDS} | small_evaluation(evaluation)
        if "by_max_turns" in evaluation:
            stored["by_max_turns"] = evaluation["by_max_turns"]
        stored["turns"] = {task["task_id"]: task["turns"] for task in evaluation["tasks"]}
        folder.with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")
        return
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((workdir / "config.json").read_text())
    # The folder of the run means nothing elsewhere.
    config.pop("workdir", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    names = {
        "metrics.jsonl": "metrics.jsonl",
        "bc/metrics.jsonl": "bc_metrics.jsonl",
        "grpo/metrics.jsonl": "grpo_metrics.jsonl",
    }
    for source, target in names.items():
        if (workdir / source).exists():
            shutil.copyfile(workdir / source, folder / target)
    if not (workdir / "summary.json").exists():
        return
    summary = json.loads((workdir / "summary.json").read_text())
    for stage in STAGES:
        summary[stage] = small_evaluation(summary[stage])
    (folder / "summary.json").write_text(json.dumps(summary, separators=(",", ":")) + "\n")


def small_evaluation(evaluation: Json) -> Json:
    """Return the rates of an evaluation and the reward of each episode."""
    return {name: evaluation[name] for name in ("success_rate", "ci95", "n")} | {
        "by_site": {site: v["success_rate"] for site, v in evaluation["by_site"].items()},
        "rewards": {task["task_id"]: task["reward"] for task in evaluation["tasks"]},
    }


def load_runs(table: str) -> list[Run]:
    """Return the runs of a table, sorted by name."""
    return [Run(folder) for folder in sorted((RUNS / table).iterdir()) if folder.is_dir()]


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float) -> str:
    """Return a fraction as percent with one decimal."""
    return f"{100 * value:.1f}"


def interval(stage: Json, sign: str = "") -> str:
    """Return a rate or difference in percent with its interval."""
    value = stage.get("success_rate", stage.get("difference"))
    low, high = stage["ci95"]
    return f"{100 * value:{sign}.1f} ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"


def gain_over(baseline: Json, candidate: Json) -> str:
    """Return the difference of two evaluations of the same tasks, with its interval."""
    return pooled_gain([baseline], [candidate])


def pooled(evaluations: Sequence[Json]) -> str:
    """Return the success rate over the episodes of several evaluations, with its interval."""
    rewards = [reward for one in evaluations for reward in one["rewards"].values()]
    return interval(
        {"success_rate": mean(rewards), "ci95": wilson(round(sum(rewards)), len(rewards))}
    )


def pooled_gain(baseline: Sequence[Json], candidate: Sequence[Json]) -> str:
    """Return the difference of evaluations of the same tasks over several seeds, in pairs."""
    pairs = [
        (new["rewards"][task], reward)
        for old, new in zip(baseline, candidate, strict=True)
        for task, reward in old["rewards"].items()
    ]
    difference, ci95 = paired_difference(*zip(*pairs, strict=True))
    return interval({"difference": difference, "ci95": ci95}, "+")


def main_results() -> dict[str, dict[str, list[list[Json]]]]:
    """Return the evaluations of BC and M-GRPO of the main runs by row and decoding.

    The last row has no M-GRPO.
    """
    tiny = load_runs("quickstart")
    rows = {
        "webagent-tiny, 12 MiniWoB++ tasks (`make quickstart`)": {
            "sampled": [[run.summary[stage] for run in tiny] for stage in STAGES[1:]],
            "greedy": [[run.evals[f"{stage}_greedy"] for run in tiny] for stage in STAGES[1:]],
        },
        "webagent-tiny, the same tasks, seeds not used to choose options": {
            "sampled": [[run.evals[f"{stage}_train_split"] for run in tiny] for stage in STAGES[1:]]
        },
    }
    few_demos = "SmolLM2-135M, eight templates of these tasks, BC on 24 demonstrations"
    runs = {
        "SmolLM2-135M, six short MiniWoB++ tasks": ("miniwob_short/bc", "miniwob_short/grpo"),
        "SmolLM2-135M, 56 MiniWoB++ tasks": ("miniwob/bc_50tasks", "miniwob/grpo_50tasks"),
        "SmolLM2-135M, short tasks of five embedded sites": ("arena_short/bc", "arena_short/grpo"),
        few_demos: ("arena_few_demos/bc", "arena_few_demos/grpo"),
        "SmolLM2-135M, the same, seed 1 of M-GRPO": (
            "arena_few_demos/bc",
            "arena_few_demos/grpo_seed1",
        ),
    }
    for title, folders in runs.items():
        evals = [Run(RUNS / folder).evals for folder in folders]
        rows[title] = {
            name: [[stage[name]] for stage in evals]
            for name in ("sampled", "greedy")
            if all(name in stage for stage in evals)
        }
    arena_bc = Run(RUNS / "arena" / "many_demos").evals
    rows["SmolLM2-135M, the 165 test tasks of these sites"] = {
        name: [[arena_bc[f"1856_{name}"]]] for name in ("sampled", "greedy")
    }
    return rows


def summary() -> str:
    """Return the table of BC and M-GRPO of the main runs, on the same episodes."""
    rows = []
    for title, evals in main_results().items():
        for name, stages in evals.items():
            num_episodes = sum(one["n"] for one in stages[0])
            gain = pooled_gain(*stages) if len(stages) > 1 else ""
            cells = [*map(pooled, stages), ""][:2]
            suffix = "" if name == "sampled" else ", greedy"
            rows.append([title + suffix, format(num_episodes, ","), *cells, gain])
    header = ["policy and tasks", "episodes", "BC", "M-GRPO", "M-GRPO minus BC, paired"]
    return table_of(header, rows)


def headline() -> str:
    """Return the table of README.md: as `summary`, with both kinds of decoding in one row.

    Rates with a gain have no interval, because that of the gain decides.
    """
    rows = []
    for title, evals in main_results().items():
        cells = []
        for name in ("sampled", "greedy"):
            match evals.get(name, []):
                case [baseline, candidate]:
                    rates = [pooled(one).partition(" ")[0] for one in (baseline, candidate)]
                    cells += [*rates, pooled_gain(baseline, candidate)]
                case [baseline]:
                    cells += [pooled(baseline), "", ""]
                case _:
                    cells += ["", "", ""]
        num_episodes = sum(one["n"] for one in evals["sampled"][0])
        rows.append([title, format(num_episodes, ","), *cells])
    header = ["policy and tasks", "episodes"]
    for suffix in ("", ", greedy"):
        header += [f"BC{suffix}", f"M-GRPO{suffix}", "difference, paired"]
    return table_of(header, rows)


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


def full_history_tokens() -> str:
    """Return the table of tokens per training episode with all pages, against one page."""
    full = load_runs("quickstart_full_history")
    one_page = [_read_jsonl(RUNS / "quickstart" / run.name / "grpo_metrics.jsonl") for run in full]
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


def quickstart_tasks() -> str:
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
        bounds = zip(*(entry["ci95"] for entry in entries), strict=True)
        axes.plot(turns, rates, marker="o", ms=3, label=name)
        axes.fill_between(turns, *([100 * bound for bound in side] for side in bounds), alpha=0.15)
    axes.set_ylim(0, 100)
    return _finish(figure, "turn limit", "success, %")


def _turn_limits() -> dict[str, list[Json]]:
    """Return the success by turn limit of BC and M-GRPO, of the one seed that has it."""
    (run,) = (run for run in load_runs("quickstart") if "grpo_turns" in run.evals)
    return {NAMES[stage]: run.evals[f"{stage}_turns"]["by_max_turns"] for stage in STAGES[1:]}


def arena_turn_limits() -> str:
    """Return the table of success on the arena by turn limit, from the turns of each episode."""
    evals = Run(RUNS / "arena" / "many_demos").evals
    limits = (2, 4, 6, 8, 10, 12, 14, 16)
    rows = []
    for name, title in {"greedy": "greedy", "sampled": "temperature 1"}.items():
        evaluation = evals[f"1856_{name}"]
        rows.append([title])
        for limit in limits:
            # A longer episode is a failure, as in `episode_stats.success_within_turns`.
            rewards = [
                reward if evaluation["turns"][task] <= limit else 0.0
                for task, reward in evaluation["rewards"].items()
            ]
            rows[-1].append(pooled([{"rewards": dict(enumerate(rewards))}]))
    return table_of(["success, %, by turn limit", *map(str, limits)], rows)


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


def bc_options(run: Run) -> str:
    """Return the options of a BC run as text."""
    bc = run.config["config"]["bc"]
    rate = bc["optimizer"]["learning_rate"]
    plural = "" if bc["demos_per_task"] == 1 else "s"
    demos = f"{bc['demos_per_task']} demonstration{plural} per task"
    batch = f"batch {bc['batch_episodes']}, {bc['epochs']} epochs"
    return f"{demos}, {batch}, learning rate {rate:g}, seed {run.config['config']['seed']}"


def bc_curves() -> Figure:
    """Draw the validation success of BC on MiniWoB++ by update, with one line per run."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots()
    for run in load_runs("bc_quickstart"):
        steps, values = run.series("validation/success")
        label = run.name.replace("_", ", ")
        axes.plot(steps, [100 * value for value in values], marker="o", ms=3, label=label)
    axes.set_ylim(0, 100)
    return _finish(figure, "update", "validation/success, %")


def bc_quickstart() -> str:
    """Return the table of validation success of BC on MiniWoB++."""
    runs = load_runs("bc_quickstart")
    rows = []
    for run in runs:
        steps, values = run.series("validation/success")
        best = max(range(len(values)), key=lambda i: values[i])
        last, highest = percent(values[-1]), percent(values[best])
        updates = str(len(run.metrics))
        rows.append([run.commit, bc_options(run), updates, last, highest, str(steps[best])])
    header = ["commit", "options", "updates", "success, last, %", "best, %", "best at update"]
    return table_of(header, rows)


def bc_decisions() -> str:
    """Return the table of decision accuracy of SmolLM2-135M on the shop."""
    runs = load_runs("bc_decisions")
    kinds = ["decisions/train", "decisions/held_out"]
    rows = []
    for run in runs:
        columns = [run.series(kind)[1] for kind in kinds]
        for step, train, held_out in zip(run.series(kinds[0])[0], *columns, strict=True):
            rows.append([run.commit, run.name, str(step), percent(train), percent(held_out)])
    return table_of(["commit", "run", "update", "trained on, %", "held out, %"], rows)


def arena_runs() -> list[Run]:
    """Return the stages of BC on the arena by name; the last stage is last."""
    return sorted(load_runs("arena"), key=lambda run: run.name == "many_demos")


def arena_sites() -> str:
    """Return the table of successes by site of the greedy evaluations in the table `arena`."""
    evaluations = {
        run.name: evaluation["rewards"]
        for run in arena_runs()
        for name, evaluation in run.evals.items()
        if name.endswith("_greedy")
    }
    # arena/SITE/TEMPLATE/NUMBER; "across" has the tasks of several sites.
    tasks = {task: task.split("/")[1] for task in next(iter(evaluations.values()))}
    sites = Counter(tasks.values())
    rows = [["tasks", *(str(count) for count in sites.values())]]
    for name, rewards in evaluations.items():
        won = Counter(tasks[task] for task, reward in rewards.items() if reward)
        rows.append([f"`{name}`", *(str(won[site]) for site in sites)])
    return table_of(["success by site", *sites], rows)


def decisions_and_success(table: str, evaluations: dict[str, str]) -> str:
    """Return the table of decision accuracy and success of the runs stored for it.

    Args:
        table: folder of the runs.
        evaluations: heading of each stored evaluation, which is of the last update.
    """
    rows = []
    for run in load_runs(table):
        kinds = ("decisions/train", "decisions/held_out")
        steps, train = run.series(kinds[0])
        for step, train_value, held_out in zip(steps, train, run.series(kinds[1])[1], strict=True):
            is_last = step == steps[-1]
            success = [
                interval(run.evals[name]) if is_last and name in run.evals else ""
                for name in evaluations
            ]
            rows.append([run.name, str(step), percent(train_value), percent(held_out), *success])
    header = ["run", "update", "decisions, trained on, %", "held out, %"]
    return table_of([*header, *evaluations.values()], rows)


def arena_shop() -> str:
    """Return the table of decision accuracy and success of SmolLM2-135M on the shop."""
    headings = {"greedy": "success, greedy, %", "sampled": "success, temperature 1, %"}
    return decisions_and_success("arena_shop", headings)


def arena() -> str:
    """Return the table of decision accuracy and success of SmolLM2-135M on all sites of the arena.

    A stored evaluation has the update of its policy in its name: `eval_240_greedy.json`. Others, of
    reduced adapters, are not in the table.
    """
    kinds = [
        f"decisions/{split}{turn}"
        for split in ("train", "held_out")
        for turn in ("/first_turn", "/later_turns")
    ]
    rows = []
    for run in arena_runs():
        decisions = [dict(zip(*run.series(kind), strict=True)) for kind in kinds]
        success = {
            int(name.removesuffix("_greedy")): evaluation
            for name, evaluation in run.evals.items()
            if name.endswith("_greedy")
        }
        for step in sorted({*decisions[0], *success}):
            cells = [percent(values[step]) if step in values else "" for values in decisions]
            cells.append(interval(success[step]) if step in success else "")
            rows.append([run.name, run.commit, str(step), *cells])
    header = ["run", "commit", "update", "first turns, trained on, %", "later turns, %"]
    header += ["first turns, held out, %", "later turns, held out, %", "success, greedy, %"]
    return table_of(header, rows)


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


def short_rl(folder: str) -> str:
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


def few_demos() -> str:
    """Return the table of BC on 24 demonstrations and of the runs that start from it."""
    titles = {
        "bc": "BC",
        "grpo": "M-GRPO, seed 0",
        "grpo_seed1": "M-GRPO, seed 1",
        "rejection_sampling": "BC on successes of M-GRPO, seed 0",
        "rejection_sampling_bc": "BC on successes of BC",
    }
    runs = {run.name: run for run in load_runs("arena_few_demos")}
    rows = []
    for name, title in titles.items():
        cells = []
        for kind in ("sampled", "greedy"):
            evaluation = runs[name].evals.get(kind)
            baseline = runs["bc"].evals[kind]
            cells.append(interval(evaluation) if evaluation else "")
            has_gain = evaluation and name != "bc"
            cells.append(gain_over(baseline, evaluation) if has_gain else "")
        rows.append([title, runs[name].commit, *cells])
    gain = "minus BC, paired"
    header = [f"success, % of {baseline['n']}", "commit", "temperature 1", gain, "greedy", gain]
    return table_of(header, rows)


def task_rates(folder: str, *names: str) -> str:
    """Return the table of success by task of the named runs, with three tasks per row."""
    runs = [run for run in load_runs(folder) if run.name in names]
    rates = [run.evals["sampled"]["by_site"] for run in runs]
    return _in_three_columns("task", [NAMES[run.name.partition("_")[0]] for run in runs], rates)


def arena_short_bc() -> str:
    """Return the table of BC on the short arena tasks, sampled and greedy."""
    evals = Run(RUNS / "arena_short" / "bc").evals
    baseline, sampled, greedy = (evals[name] for name in ("before_sampled", "sampled", "greedy"))
    rows = [
        ["temperature 1", interval(baseline), interval(sampled), gain_over(baseline, sampled)],
        ["greedy", "", interval(greedy), ""],
    ]
    header = [f"success, % of {greedy['n']}", "before BC", "BC", "BC minus before, paired"]
    return table_of(header, rows)


def arena_short_hindsight() -> str:
    """Return the table of BC on episodes of M-GRPO, with and without relabeled failures."""
    runs = {run.name: run for run in load_runs("arena_short_hindsight")}
    start = Run(RUNS / "arena_short" / "bc").evals["sampled"]
    successes, mixed = (runs[name].evals["sampled"] for name in ("successes", "mixed"))
    rows = [
        ["start", interval(start), "", ""],
        ["successes", interval(successes), gain_over(start, successes), ""],
        [
            "relabeled failures and successes",
            interval(mixed),
            gain_over(start, mixed),
            gain_over(successes, mixed),
        ],
    ]
    header = ["demonstrations", f"success, % of {start['n']}", "minus start, paired"]
    return table_of([*header, "minus successes, paired"], rows)


def arena_short_mistakes() -> str:
    """Return the table of BC on demonstrations without and with mistakes of the expert."""
    without = Run(RUNS / "arena_short" / "bc").evals
    with_mistakes = Run(RUNS / "arena_short_mistakes" / "bc").evals
    rows = [
        [
            name,
            interval(without[key]),
            interval(with_mistakes[key]),
            pooled_gain([without[key]], [with_mistakes[key]]),
        ]
        for name, key in (("temperature 1", "sampled"), ("greedy", "greedy"))
    ]
    header = ["success, % of 188", "without mistakes", "with mistakes", "difference, paired"]
    return table_of(header, rows)


def arena_short_adaptive() -> str:
    """Return the table of uniform and adaptive task sampling on the short arena tasks."""
    runs = {run.name: run for run in load_runs("arena_short")}
    adaptive = Run(RUNS / "arena_short_adaptive" / "grpo")
    baseline = runs["bc"].evals
    rows = []
    for title, run, updates, suffix in (
        ("uniform", runs["grpo"], 12, ""),
        ("adaptive", adaptive, 12, "_12"),
        ("adaptive", adaptive, 20, "_20"),
    ):
        records = [record for record in run.metrics if record["update"] <= updates]
        cells = []
        for name in ("sampled", "greedy"):
            candidate = run.evals.get(name + suffix)
            cells += (
                [interval(candidate), gain_over(baseline[name], candidate)]
                if candidate
                else ["", ""]
            )
        num_episodes = sum(record["episodes/total"] for record in records)
        trained = mean([record["groups/kept_fraction"] for record in records])
        rows.append([title, str(updates), f"{num_episodes:,.0f}", f"{100 * trained:.0f}", *cells])
    header = [
        "tasks",
        "updates",
        "episodes",
        "groups with both outcomes, %",
        "temperature 1",
        "minus BC, paired",
        "greedy",
        "minus BC, paired",
    ]
    return table_of(header, rows)


def arena_templates(folder: str, name: str, grpo_runs: Sequence[str] = ("grpo",)) -> str:
    """Return the table of success by template of arena tasks, after BC and M-GRPO.

    Args:
        folder: folder of the runs in docs/results/.
        name: suffix of the stored evaluations, such as "greedy".
        grpo_runs: names of the runs of M-GRPO; their mean is in the table.
    """
    rates = []
    for runs in (("bc",), grpo_runs):
        rewards: dict[str, list[float]] = {}
        for run in runs:
            for task, reward in Run(RUNS / folder / run).evals[name]["rewards"].items():
                rewards.setdefault("/".join(task.split("/")[1:3]), []).append(reward)
        rates.append({template: mean(values) for template, values in rewards.items()})
    return _in_three_columns("template", [NAMES[stage] for stage in STAGES[1:]], rates)


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


def _in_three_columns(
    label: str, names: Sequence[str], rates: Sequence[Mapping[str, float]]
) -> str:
    """Return a table of rates in percent by key, with three keys per row."""
    cells = [[key, *(f"{100 * rate[key]:.0f}" for rate in rates)] for key in sorted(rates[0])]
    height = -(-len(cells) // 3)
    cells += [[""] * len(cells[0])] * (3 * height - len(cells))
    rows = [[*cells[i], *cells[i + height], *cells[i + 2 * height]] for i in range(height)]
    return table_of([label, *names] * 3, rows)


Variants = tuple[dict[str, dict[str, Json]], dict[str, list[list[Json]]]]
"""Evaluation by variant and seed; metrics of each run by variant."""


def load_variants(baseline: str, folder: str, default: str = "default") -> Variants:
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
        default: [_read_jsonl(baselines[seed].folder / "grpo_metrics.jsonl") for seed in seeds]
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
    return _finish(figure, "episodes", "success in training, %, mean of 5 updates")


def _finish(figure: Figure, xlabel: str, ylabel: str) -> Figure:
    """Add labels and the legend beside the curves, and return the figure."""
    (axes,) = figure.axes
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


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
    header = ["policy", "commit", "success, %", "minus start of BC, paired", "turns, mean"]
    return table_of([*header, "invalid responses, % of turns"], rows)


# Arguments of `load_variants`.
_QUICKSTART = ("quickstart", "quickstart_variants")
_OBJECTIVES = ("quickstart_two_demos", "objectives")
_TEMPERATURE = ("quickstart_temperature_1", "temperature_variants", "`learning_rate_5e-4`")

TABLES: dict[str, Callable[[], str]] = {
    "summary": summary,
    "headline": headline,
    "quickstart": partial(quickstart, "quickstart"),
    "quickstart_greedy": partial(quickstart_evals, "greedy"),
    "quickstart_train_split": partial(quickstart_evals, "train_split"),
    "quickstart_task_rates": quickstart_task_rates,
    "turn_limits": turn_limits,
    "arena_turn_limits": arena_turn_limits,
    "quickstart_temperature_1": partial(quickstart, "quickstart_temperature_1"),
    "quickstart_two_demos": partial(quickstart, "quickstart_two_demos"),
    "quickstart_two_demos_tasks": quickstart_tasks,
    "quickstart_r1": quickstart_r1,
    "quickstart_thoughts": quickstart_thoughts,
    "full_history": full_history,
    "full_history_tokens": full_history_tokens,
    "bc_quickstart": bc_quickstart,
    "bc_decisions": bc_decisions,
    "arena_shop": arena_shop,
    "arena": arena,
    "arena_sites": arena_sites,
    "miniwob": miniwob,
    "miniwob_rl": miniwob_rl,
    "miniwob_tasks": partial(task_rates, "miniwob", "bc_50tasks", "grpo_50tasks"),
    "arena_short_bc": arena_short_bc,
    "arena_short_rl": partial(short_rl, "arena_short"),
    "arena_short_adaptive": arena_short_adaptive,
    "arena_short_hindsight": arena_short_hindsight,
    "arena_short_mistakes": arena_short_mistakes,
    "arena_short_templates": partial(arena_templates, "arena_short", "sampled"),
    "arena_short_templates_greedy": partial(arena_templates, "arena_short", "greedy"),
    "arena_few_demos": few_demos,
    "arena_few_demos_templates": partial(
        arena_templates, "arena_few_demos", "greedy", ("grpo", "grpo_seed1")
    ),
    "arena_few_demos_updates": partial(updates_of, "arena_few_demos/grpo"),
    "arena_few_demos_updates_seed1": partial(updates_of, "arena_few_demos/grpo_seed1"),
    "arena_short_temperature": partial(updates_of, "arena_short_temperature_1.2/grpo"),
    "arena_many_demos": partial(updates_of, "arena_many_demos/grpo"),
    "arena_test_templates": partial(short_rl, "arena_test_templates"),
    "arena_test_templates_updates": partial(updates_of, "arena_test_templates/grpo"),
    "arena_short_24_demos": partial(updates_of, "arena_short_24_demos/grpo"),
    "miniwob_short_rl": partial(short_rl, "miniwob_short"),
    "miniwob_short_tasks": partial(task_rates, "miniwob_short", "bc", "grpo"),
    "quickstart_variants": partial(variants_of, *_QUICKSTART),
    "objectives": partial(variants_of, *_OBJECTIVES),
    "temperature_variants": partial(variants_of, *_TEMPERATURE),
    "infinity_apps": partial(infinity, "apps"),
    "infinity_tasks": partial(infinity, "tasks"),
}


# By the name of the file in docs/images/.
FIGURES: dict[str, Callable[[], Figure]] = {
    "quickstart-turns.png": turn_limit_curves,
    "bc_quickstart.png": bc_curves,
    "quickstart_variants.png": partial(training_curves, *_QUICKSTART),
    "objectives.png": partial(training_curves, *_OBJECTIVES),
    "temperature_variants.png": partial(training_curves, *_TEMPERATURE),
}


def redraw(page: Path) -> str:
    """Return the text of the page with all tables rebuilt."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name not in TABLES:
            sys.exit(f"{page}: unknown table {name!r}; available: {', '.join(TABLES)}")
        return f"<!-- table: {name} -->\n\n{TABLES[name]()}\n\n<!-- end of table -->"

    pattern = r"<!-- table: (\w+) -->.*?<!-- end of table -->"
    return re.sub(pattern, replace, page.read_text(), flags=re.DOTALL)


def main() -> None:
    """Redraw or check the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a table differs; write nothing"
    )
    parser.add_argument("--store", type=Path, metavar="WORKDIR", help="workdir to store first")
    parser.add_argument("--as", dest="name", metavar="TABLE/NAME", help="path in docs/results/")
    arguments = parser.parse_args()
    if arguments.store and not (arguments.name and (arguments.store / "config.json").exists()):
        sys.exit(f"--store={arguments.store} needs --as=TABLE/NAME and a workdir with config.json")
    if arguments.store:
        store(arguments.store, RUNS / arguments.name)
    for page in PAGES:
        result = redraw(page)
        if not arguments.check:
            page.write_text(result)
        elif page.read_text() != result:
            sys.exit(f"{page} differs from docs/results/: run python tools/redraw_results.py")
    if not arguments.check:
        for name, draw in FIGURES.items():
            draw().savefig(DOCS / "images" / name, dpi=130)


if __name__ == "__main__":
    main()
