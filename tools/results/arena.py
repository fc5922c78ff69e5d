"""Tables of the arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean

from tools.results.behavior_cloning import decisions_and_success
from tools.results.formatting import (
    NAMES,
    gain_over,
    in_three_columns,
    interval,
    percent,
    pooled,
    pooled_gain,
    table_of,
)
from tools.results.stored_runs import RUNS, STAGES, Run, load_runs


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


def arena_shop() -> str:
    """Return the table of decision accuracy and success of SmolLM2-135M on the shop."""
    headings = {"greedy": "success, greedy, %", "sampled": "success, temperature 1, %"}
    return decisions_and_success("arena_shop", headings)


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


def arena_templates(
    folder: str,
    name: str,
    bc_runs: Sequence[str] = ("bc",),
    grpo_runs: Sequence[str] = ("grpo",),
) -> str:
    """Return the table of success by template of arena tasks, after BC and M-GRPO.

    Args:
        folder: folder of the runs in docs/results/.
        name: suffix of the stored evaluations, such as "greedy".
        bc_runs: names of the runs of BC; their mean is in the table.
        grpo_runs: names of the runs of M-GRPO, likewise.
    """
    rates = []
    for runs in (bc_runs, grpo_runs):
        rewards: dict[str, list[float]] = {}
        for run in runs:
            for task, reward in Run(RUNS / folder / run).evals[name]["rewards"].items():
                rewards.setdefault("/".join(task.split("/")[1:3]), []).append(reward)
        rates.append({template: mean(values) for template, values in rewards.items()})
    return in_three_columns("template", [NAMES[stage] for stage in STAGES[1:]], rates)
