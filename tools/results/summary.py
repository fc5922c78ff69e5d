"""Tables of the main results in README.md, docs/results.md and docs/training_guide.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from tools.results.formatting import gain_over_task_names, pooled, pooled_gain, table_of
from tools.results.quickstart import bc_and_grpo_evals
from tools.results.stored_runs import RUNS, STAGES, Evals, Json, Run, load_runs, read_jsonl

# Last update of the evaluated policy, for runs that continued.
_EVALUATED_UPDATES = {
    f"arena_few_demos/{name}": 9 for name in ("grpo_seed1", "grpo_seed2", "grpo_twice_seed2")
}
# BC and the M-GRPO that starts from it, by seed of M-GRPO. Seeds 0 and 1 start from one BC policy.
FEW_DEMOS = (
    ("bc", "bc", "bc_twice_seed2"),
    ("grpo", "grpo_seed1", "grpo_twice_seed2"),
)
_FEW_DEMOS_FOLDERS = [[f"arena_few_demos/{name}" for name in names] for names in FEW_DEMOS]
_GROUP_SIZE = 8  # of all runs


def main_results() -> dict[str, Evals]:
    """Return the evaluations of BC and M-GRPO of the main runs by row; some have no M-GRPO."""
    options_unseen = [
        [run.evals[f"{stage}_train_split"] for run in load_runs("quickstart")]
        for stage in STAGES[1:]
    ]
    arena_bc = Run(RUNS / "arena" / "many_demos").evals
    few_demos = "SmolLM2-135M, eight templates of these tasks, BC on 24 demonstrations"
    return {
        "webagent-tiny, 12 MiniWoB++ tasks (`make quickstart`)": bc_and_grpo_evals(),
        "webagent-tiny, the same tasks, instances not used to choose options": {
            "sampled": options_unseen
        },
        "webagent-tiny, 50 MiniWoB++ tasks without selection": _evals(
            ["miniwob_tiny/bc", "miniwob_tiny/bc_seed1"],
            ["miniwob_tiny/grpo", "miniwob_tiny/grpo_seed1"],
        ),
        "SmolLM2-135M, six short MiniWoB++ tasks": _evals(
            ["miniwob_short/bc"], ["miniwob_short/grpo"]
        ),
        "SmolLM2-135M, 56 MiniWoB++ tasks": _evals(
            ["miniwob/bc_reasons_more"], ["miniwob_reasons/grpo_learning_rate_2e-4"]
        ),
        "SmolLM2-135M, short tasks of five embedded sites": _evals(
            ["arena_short/bc"], ["arena_short/grpo"]
        ),
        few_demos: _evals(*_FEW_DEMOS_FOLDERS),
        "SmolLM2-135M, the 165 test tasks of these sites": {
            name: [[arena_bc[f"1856_{name}"]]] for name in ("sampled", "greedy")
        },
    }


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


def gains_over_task_names() -> str:
    """Return the table of the gains of the main runs with intervals for other tasks."""
    rows = []
    for title, evals in main_results().items():
        gains = {
            name: gain_over_task_names(*stages) for name, stages in evals.items() if len(stages) > 1
        }
        if gains:
            num_names = gains["sampled"][0]
            cells = [gains[name][1] if name in gains else "" for name in ("sampled", "greedy")]
            rows.append([title, str(num_names), *cells])
    return table_of(["policy and tasks", "task names or templates", "sampled", "greedy"], rows)


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
    tiny_metrics = [read_jsonl(run.folder / "grpo_metrics.jsonl") for run in tiny]
    title = "webagent-tiny, 12 MiniWoB++ tasks, mean of three seeds"
    rows = [_groups_and_gain(title, tiny[0], tiny_metrics, bc_and_grpo_evals(), num_tasks=12)]
    for title, baseline, candidate in (
        ("webagent-tiny, 50 MiniWoB++ tasks, seed 0", "miniwob_tiny/bc", "miniwob_tiny/grpo"),
        (
            "webagent-tiny, 50 MiniWoB++ tasks, seed 1",
            "miniwob_tiny/bc_seed1",
            "miniwob_tiny/grpo_seed1",
        ),
        ("six short MiniWoB++ tasks", "miniwob_short/bc", "miniwob_short/grpo"),
        (
            "12 MiniWoB++ tasks after two epochs of BC, evaluated on 56",
            "miniwob/bc_reasons_more",
            "miniwob_reasons/grpo",
        ),
        (
            "12 MiniWoB++ tasks after two epochs of BC, evaluated on 56",
            "miniwob/bc_reasons_more",
            "miniwob_reasons/grpo_learning_rate_2e-4",
        ),
        ("12 MiniWoB++ tasks, evaluated on 56", "miniwob_second/bc", "miniwob_second/grpo"),
        *(
            (f"eight arena templates, seed {seed}", *folders)
            for seed, folders in enumerate(zip(*_FEW_DEMOS_FOLDERS, strict=True))
        ),
        (
            "eight arena templates, seed 2, from shorter BC",
            "arena_few_demos/bc_seed2",
            "arena_few_demos/grpo_seed2",
        ),
        ("22 arena templates", "arena_short/bc", "arena_short/grpo"),
        (
            "22 arena templates, from BC that had not converged, adaptive task sampling",
            "arena_few_demos_all/bc",
            "arena_few_demos_all/grpo",
        ),
        (
            "templates of the arena's test tasks",
            "arena_test_templates/bc",
            "arena_test_templates/grpo",
        ),
        ("50 MiniWoB++ tasks", "miniwob/bc_50tasks", "miniwob/grpo_50tasks"),
        (
            "13 MiniWoB++ tasks after BC on the arena, 16 updates",
            "miniwob_after_arena/bc",
            "miniwob_after_arena/grpo",
        ),
        (
            "13 MiniWoB++ tasks after BC on the arena, 8 updates",
            "miniwob_after_arena/bc",
            "miniwob_after_arena/grpo_temperature_1.3",
        ),
        (
            "13 MiniWoB++ tasks after BC on the arena, 7 updates",
            "miniwob_after_arena/bc",
            "miniwob_after_arena/grpo_learning_rate_4e-4",
        ),
    ):
        run = Run(RUNS / candidate)
        metrics = run.metrics[: _EVALUATED_UPDATES.get(candidate)]
        evals = _evals([baseline], [candidate])
        num_tasks = _num_training_tasks(run)
        rows.append(_groups_and_gain(title, run, [metrics], evals, num_tasks=num_tasks))
    rows.sort(key=lambda row: float(row[3]), reverse=True)
    header = ["tasks", "rollout temperature", "learning rate", "groups with a gradient per task"]
    header += ["entropy, first update", "BC, greedy, %", "M-GRPO minus BC, temperature 1", "greedy"]
    return table_of(header, rows)


def _groups_and_gain(
    title: str, run: Run, metrics: list[list[Json]], evals: Evals, *, num_tasks: int
) -> list[str]:
    """Return the row of one setting; `metrics` has the records of each seed."""
    config = run.config["config"]
    temperature = config["rollout"]["temperature"]
    learning_rate = config["grpo"]["optimizer"]["learning_rate"]
    num_groups = mean(
        sum(
            update["episodes/total"] / _GROUP_SIZE * update["groups/kept_fraction"]
            for update in updates
        )
        for updates in metrics
    )
    entropy = mean(updates[0]["entropy"] for updates in metrics)
    gains = [pooled_gain(*evals[name]) if name in evals else "" for name in ("sampled", "greedy")]
    bc = pooled(evals["greedy"][0]).partition(" ")[0] if "greedy" in evals else ""
    options = [f"{temperature:g}", f"{learning_rate:.1e}".replace("e-0", "e-")]
    return [title, *options, f"{num_groups / num_tasks:.1f}", f"{entropy:.2f}", bc, *gains]


def _evals(*stages: Sequence[str]) -> Evals:
    """Return the evaluations that all runs have; `stages` are the folders of BC and of M-GRPO."""
    runs = [[Run(RUNS / folder) for folder in folders] for folders in stages]
    return {
        name: [[run.evals[name] for run in seeds] for seeds in runs]
        for name in ("sampled", "greedy")
        if all(name in run.evals for seeds in runs for run in seeds)
    }


def _num_training_tasks(run: Run) -> int:
    """Return the number of task names or templates that the run trains on."""
    names = run.config["config"]["suite"]["tasks"]
    if "shop" not in names:
        return len(names)
    # Names of sites: the evaluation has every template, as arena/SITE/TEMPLATE/NUMBER.
    tasks = [task.split("/") for task in run.evals["sampled"]["rewards"]]
    return len({(site, template) for _, site, template, _ in tasks if site in names})
