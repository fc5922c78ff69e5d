"""Tables of the main results in README.md and docs/results.md."""

from __future__ import annotations

from statistics import mean

from tools.results.formatting import pooled, pooled_gain, table_of
from tools.results.stored_runs import RUNS, STAGES, Json, Run, load_runs, read_jsonl

# Last update of the evaluated policy, for runs that continued.
_EVALUATED_UPDATES = {"arena_few_demos/grpo_seed1": 9}


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


def groups_and_gains() -> str:
    """Return the table of groups with a gradient per task, and of the gains of M-GRPO."""
    tiny = load_runs("quickstart")
    entries = [
        (
            "webagent-tiny, 12 MiniWoB++ tasks, mean of three seeds",
            12,
            [read_jsonl(run.folder / "grpo_metrics.jsonl") for run in tiny],
            {
                "sampled": [[run.summary[stage] for run in tiny] for stage in STAGES[1:]],
                "greedy": [[run.evals[f"{stage}_greedy"] for run in tiny] for stage in STAGES[1:]],
            },
        )
    ]
    for title, baseline, candidate in (
        ("six short MiniWoB++ tasks", "miniwob_short/bc", "miniwob_short/grpo"),
        ("eight arena templates, seed 1", "arena_few_demos/bc", "arena_few_demos/grpo_seed1"),
        ("eight arena templates, seed 0", "arena_few_demos/bc", "arena_few_demos/grpo"),
        ("22 arena templates", "arena_short/bc", "arena_short/grpo"),
        (
            "templates of the arena's test tasks",
            "arena_test_templates/bc",
            "arena_test_templates/grpo",
        ),
        ("50 MiniWoB++ tasks", "miniwob/bc_50tasks", "miniwob/grpo_50tasks"),
    ):
        runs = [Run(RUNS / baseline), Run(RUNS / candidate)]
        evals = {
            name: [[run.evals[name]] for run in runs]
            for name in ("sampled", "greedy")
            if all(name in run.evals for run in runs)
        }
        num_tasks = _num_training_tasks(runs[1])
        # Updates after the evaluated one do not count.
        metrics = runs[1].metrics[: _EVALUATED_UPDATES.get(candidate)]
        entries.append((title, num_tasks, [metrics], evals))
    rows = []
    for title, num_tasks, metrics, evals in entries:
        # An episode of a group of 8 counts 1/8; the runs have no other group size.
        num_groups = mean(
            sum(update["episodes/total"] / 8 * update["groups/kept_fraction"] for update in updates)
            for updates in metrics
        )
        entropy = mean(updates[0]["entropy"] for updates in metrics)
        gains = [
            pooled_gain(*evals[name]) if name in evals else "" for name in ("sampled", "greedy")
        ]
        rows.append([title, f"{num_groups / num_tasks:.1f}", f"{entropy:.2f}", *gains])
    header = ["tasks", "groups with a gradient per task", "entropy, first update"]
    return table_of([*header, "M-GRPO minus BC, temperature 1", "greedy"], rows)


def _num_training_tasks(run: Run) -> int:
    """Return the number of task names or templates that the run trains on."""
    names = run.config["config"]["suite"]["tasks"]
    if "shop" not in names:
        return len(names)
    # Names of sites: the evaluation has every template, as arena/SITE/TEMPLATE/NUMBER.
    tasks = [task.split("/") for task in run.evals["sampled"]["rewards"]]
    return len({(site, template) for _, site, template, _ in tasks if site in names})
