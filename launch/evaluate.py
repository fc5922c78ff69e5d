"""Success rate of a policy on held-out tasks. Goes on where it stopped.

python launch/evaluate.py --config=configs/quickstart.py --config.policy.path=runs/grpo/policy \
    --workdir=runs/eval
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags

from webagent_jax import config, evaluate
from webagent_jax.report.progress import open_progress

_CONFIG = config_flags.DEFINE_config_file("config", "configs/quickstart.py", lock_config=True)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder for all that the run writes.", required=True
)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn tell of every step
    workdir = Path(_WORKDIR.value)
    with open_progress() as progress:
        report = evaluate.evaluate(config.from_config_dict(_CONFIG.value), workdir, progress)
    print(evaluate.by_outcome_line(report))
    print(f"Open {workdir / 'report.html'}")


if __name__ == "__main__":
    app.run(main)
