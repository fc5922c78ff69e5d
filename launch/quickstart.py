"""Run the full pipeline of `make quickstart`: BC, M-GRPO and their evaluations.

python launch/quickstart.py --config=configs/quickstart.py --workdir=runs/quickstart
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import cli, quickstart
from webagent_jax.tracking.progress import open_progress


def main(argv: Sequence[str]) -> None:
    """Run the pipeline and print its results."""
    workdir = cli.parse_workdir(argv, default_workdir="runs/quickstart")
    with cli.exit_on_user_error(), open_progress() as progress:
        summary = quickstart.quickstart(cli.load_checked_config(), workdir, progress)
    print(quickstart.table(summary))
    print(f"Open {workdir / 'report.html'}")


if __name__ == "__main__":
    app.run(main)
