"""Success rate of a policy on held-out tasks, and how sure it is. Goes on where it stopped.

python launch/evaluate.py --config=configs/quickstart.py --config.policy.path=runs/grpo/policy \
    --workdir=runs/eval --compare=runs/eval_bc

--config.eval.max_turns=5,10,20 tells success by turn limit, from one run at the longest;
--config.eval.attempts=8 tells pass@k up to 8. --compare takes another eval.json, or the folder of
one, and tests the difference over the tasks that both have.

Status 0 says that every episode has a reward. Where browser or site failed one for good, the
figures of the others are written and printed all the same; the same command plays it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax import cli, evaluate
from webagent_jax.report import comparison, tables
from webagent_jax.tracking import atomic_files
from webagent_jax.tracking.progress import open_progress

_COMPARE = flags.DEFINE_string("compare", "", "Another eval.json, or its folder, to test against.")


def main(argv: Sequence[str]) -> None:
    workdir = cli.begin(argv)
    with cli.told_plainly():
        other = comparison.read(Path(_COMPARE.value)) if _COMPARE.value else None
        with open_progress() as progress:
            evaluate.evaluate(cli.playable_config(), workdir, progress)
        record = comparison.read(workdir)
        print(f"\n{tables.evaluation(record)}")
        if other is not None:
            compared = comparison.compare(record, other)
            atomic_files.write_json(workdir / "comparison.json", compared.to_json())
            print(f"\n{tables.change(compared, _COMPARE.value)}")
    print(f"\nOpen {workdir / 'report.html'}")
    if record["infra"]:
        sys.exit(tables.unscored(record))


if __name__ == "__main__":
    app.run(main)
