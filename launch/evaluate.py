"""Success rate of a policy on held-out tasks. Goes on where it stopped.

python launch/evaluate.py --config=configs/quickstart.py --config.policy.path=runs/grpo/policy \
    --workdir=runs/eval
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import evaluate, launcher
from webagent_jax.report.progress import open_progress


def main(argv: Sequence[str]) -> None:
    workdir = launcher.begin(argv)
    with launcher.told_plainly(), open_progress() as progress:
        report = evaluate.evaluate(launcher.playable_config(), workdir, progress)
    print(evaluate.by_outcome_line(report))
    print(f"Open {workdir / 'report.html'}")


if __name__ == "__main__":
    app.run(main)
