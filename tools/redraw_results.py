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
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.results.arena import (
    arena,
    arena_shop,
    arena_short_adaptive,
    arena_short_bc,
    arena_short_hindsight,
    arena_short_mistakes,
    arena_sites,
    arena_templates,
    arena_turn_limits,
)
from tools.results.behavior_cloning import bc_curves, bc_decisions, bc_quickstart
from tools.results.infinity import infinity
from tools.results.miniwob import (
    miniwob,
    miniwob_rl,
    miniwob_second_epoch,
    miniwob_second_epoch_rl,
    miniwob_second_epoch_rl_trained,
    miniwob_second_thoughts,
    miniwob_third_epoch,
    miniwob_thoughts,
    miniwob_thoughts_tasks,
)
from tools.results.quickstart import (
    full_history,
    full_history_tokens,
    quickstart,
    quickstart_evals,
    quickstart_longer_bc,
    quickstart_r1,
    quickstart_task_rates,
    quickstart_thoughts,
    turn_limit_curves,
    turn_limits,
    two_demos_tasks,
)
from tools.results.reinforcement_learning import bc_and_grpo, runs_from, task_rates, updates_of
from tools.results.stored_runs import ROOT, RUNS, store
from tools.results.summary import (
    FEW_DEMOS,
    gains_over_task_names,
    groups_and_gains,
    headline,
    summary,
)
from tools.results.variants import training_curves, variants_of

DOCS = ROOT / "docs"
PAGES = (
    ROOT / "README.md",
    *(DOCS / f"{name}.md" for name in ("results", "lab_log", "training_guide")),
)

# Arguments of `load_variants`.
_QUICKSTART = ("quickstart", "quickstart_variants")
_OBJECTIVES = ("quickstart_two_demos", "objectives")
_TEMPERATURE = ("quickstart_temperature_1", "temperature_variants", "`learning_rate_5e-4`")

# Titles of runs in tables of `runs_from`; the first is the policy that the others start from.
_FEW_DEMOS_TITLES = {
    "bc": "BC",
    "grpo": "M-GRPO, seed 0",
    "grpo_seed1": "M-GRPO, seed 1",
    "bc_twice": "BC again",
    "bc_seed2": "BC, seed 2",
    "bc_twice_seed2": "BC again, seed 2",
    "grpo_twice_seed2": "M-GRPO from BC again, seed 2",
    "grpo_seed2": "M-GRPO from BC, seed 2",
    "rejection_sampling": "BC on successes of M-GRPO, seed 0",
    "rejection_sampling_bc": "BC on successes of BC",
}
_FEW_DEMOS_STARTS = {
    "bc_seed2": None,
    "bc_twice_seed2": "bc_seed2",
    "grpo_twice_seed2": "bc_twice_seed2",
    "grpo_seed2": "bc_seed2",
}
_ALL_TEMPLATES_TITLES = {"bc": "BC", "grpo": "M-GRPO from BC", "bc_again": "BC again"}
_AFTER_ARENA_TITLES = {
    "bc": "BC",
    "grpo": "M-GRPO, 16 updates",
    "grpo_temperature_1.3": "temperature 1.3, 8 updates",
    "grpo_learning_rate_4e-4": "temperature 1.3, learning rate 4e-4, 7 updates",
}

_TINY_TITLES = {
    "bc": "BC",
    "grpo": "M-GRPO, 24 updates",
    "grpo_60": "M-GRPO, 60 updates",
    "bc_seed1": "BC, seed 1",
    "grpo_seed1": "M-GRPO, 24 updates, seed 1",
}
_TINY_STARTS = {"bc_seed1": None, "grpo_seed1": "bc_seed1"}

_FOUR_TASKS_TITLES = {
    "bc": "BC",
    "bc_more": "BC, second round",
    "grpo": "M-GRPO, 9 updates",
}

TABLES: dict[str, Callable[[], str]] = {
    "summary": summary,
    "headline": headline,
    "gains_over_task_names": gains_over_task_names,
    "groups_and_gains": groups_and_gains,
    "quickstart": partial(quickstart, "quickstart"),
    "quickstart_greedy": partial(quickstart_evals, "greedy"),
    "quickstart_longer_bc": quickstart_longer_bc,
    "quickstart_train_split": partial(quickstart_evals, "train_split"),
    "quickstart_task_rates": quickstart_task_rates,
    "turn_limits": turn_limits,
    "arena_turn_limits": arena_turn_limits,
    "quickstart_temperature_1": partial(quickstart, "quickstart_temperature_1"),
    "quickstart_two_demos": partial(quickstart, "quickstart_two_demos"),
    "quickstart_two_demos_tasks": two_demos_tasks,
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
    "miniwob_second_epoch": miniwob_second_epoch,
    "miniwob_second_epoch_rl": miniwob_second_epoch_rl,
    "miniwob_second_epoch_rl_trained": miniwob_second_epoch_rl_trained,
    "miniwob_third_epoch": miniwob_third_epoch,
    "miniwob_thoughts": miniwob_thoughts,
    "miniwob_thoughts_tasks": miniwob_thoughts_tasks,
    "miniwob_tiny": partial(runs_from, "miniwob_tiny", _TINY_TITLES, _TINY_STARTS),
    "miniwob_tiny_tasks": partial(task_rates, "miniwob_tiny", "bc", "grpo"),
    "miniwob_four": partial(runs_from, "miniwob_four", _FOUR_TASKS_TITLES),
    "miniwob_four_updates": partial(updates_of, "miniwob_four/grpo"),
    "miniwob_after_arena": partial(runs_from, "miniwob_after_arena", _AFTER_ARENA_TITLES),
    "miniwob_after_arena_tasks": partial(
        task_rates, "miniwob_after_arena", "bc", "grpo", evaluation="greedy"
    ),
    "miniwob_after_arena_updates": partial(updates_of, "miniwob_after_arena/grpo"),
    "miniwob_after_arena_updates_temperature": partial(
        updates_of, "miniwob_after_arena/grpo_temperature_1.3"
    ),
    "miniwob_after_arena_updates_rate": partial(
        updates_of, "miniwob_after_arena/grpo_learning_rate_4e-4"
    ),
    "miniwob_tasks": partial(task_rates, "miniwob", "bc_50tasks", "grpo_50tasks"),
    "miniwob_second_rl": partial(bc_and_grpo, "miniwob_second"),
    "miniwob_second_tasks": partial(
        task_rates, "miniwob_second", "bc", "grpo", evaluation="greedy"
    ),
    "miniwob_second_thoughts": miniwob_second_thoughts,
    "miniwob_second_updates": partial(updates_of, "miniwob_second/grpo"),
    "arena_short_bc": arena_short_bc,
    "arena_short_rl": partial(bc_and_grpo, "arena_short"),
    "arena_short_adaptive": arena_short_adaptive,
    "arena_short_hindsight": arena_short_hindsight,
    "arena_short_mistakes": arena_short_mistakes,
    "arena_short_templates": partial(arena_templates, "arena_short", "sampled"),
    "arena_short_templates_greedy": partial(arena_templates, "arena_short", "greedy"),
    "arena_few_demos": partial(runs_from, "arena_few_demos", _FEW_DEMOS_TITLES, _FEW_DEMOS_STARTS),
    "arena_few_demos_templates": partial(arena_templates, "arena_few_demos", "greedy", *FEW_DEMOS),
    "arena_few_demos_updates": partial(updates_of, "arena_few_demos/grpo"),
    "arena_few_demos_updates_seed1": partial(updates_of, "arena_few_demos/grpo_seed1"),
    "arena_few_demos_updates_seed2": partial(updates_of, "arena_few_demos/grpo_twice_seed2"),
    "arena_few_demos_all": partial(runs_from, "arena_few_demos_all", _ALL_TEMPLATES_TITLES),
    "arena_few_demos_all_templates": partial(arena_templates, "arena_few_demos_all", "greedy"),
    "arena_few_demos_all_updates": partial(updates_of, "arena_few_demos_all/grpo"),
    "arena_short_temperature": partial(updates_of, "arena_short_temperature_1.2/grpo"),
    "arena_many_demos": partial(updates_of, "arena_many_demos/grpo"),
    "arena_test_templates": partial(bc_and_grpo, "arena_test_templates"),
    "arena_test_templates_updates": partial(updates_of, "arena_test_templates/grpo"),
    "arena_short_24_demos": partial(updates_of, "arena_short_24_demos/grpo"),
    "miniwob_short_rl": partial(bc_and_grpo, "miniwob_short"),
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
