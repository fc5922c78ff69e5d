r"""Evaluate a policy on held-out tasks; an interrupted evaluation resumes.

webagent evaluate --config=quickstart --config.policy.path=runs/grpo/policy --workdir=runs/eval \
    --compare=runs/eval_bc

--config.eval.max_turns=5,10,20 reports success by turn limit, from episodes at the highest limit.
--config.eval.attempts=8 reports pass@k up to 8. --compare tests the difference to another
evaluation over their common tasks.

Exits with 0 if every episode has a reward. After infrastructure faults it prints the results of the
other episodes and exits with a message; the same command retries the failed ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.tracking import atomic_files
from webagent_jax.tracking.progress import open_progress
from webagent_jax.tracking.workdir_lock import hold_lock

_COMPARE = flags.DEFINE_string(
    "compare", "", "Baseline of a paired test: an eval.json or its folder."
)


def main(argv: Sequence[str]) -> None:
    """Run the evaluation and print its results."""
    workdir, cfg = parse_workdir(argv), load_checked_config()
    from webagent_jax import evaluate
    from webagent_jax.report import comparison, tables

    baseline = comparison.read(Path(_COMPARE.value)) if _COMPARE.value else None
    with hold_lock(workdir), open_progress() as progress:
        evaluate.evaluate(cfg, workdir, progress)
    record = comparison.read(workdir)
    print(f"\n{tables.evaluation(record)}")
    if baseline is not None:
        difference = comparison.compare(record, baseline)
        atomic_files.write_json(workdir / "comparison.json", difference.to_json())
        print(f"\n{tables.comparison_text(difference, _COMPARE.value)}")
    print(f"\nOpen {workdir / 'report.html'}")
    if record["infra"]:
        sys.exit(tables.infra_text(record))
