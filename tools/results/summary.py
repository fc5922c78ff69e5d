"""Tables of the main results in README.md and docs/results.md."""

from __future__ import annotations

from tools.results.formatting import pooled, pooled_gain, table_of
from tools.results.stored_runs import RUNS, STAGES, Json, Run, load_runs


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
