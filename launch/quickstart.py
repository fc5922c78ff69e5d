"""Trains a web agent on live Chromium, start to finish: the command behind `make quickstart`.

python launch/quickstart.py --config=configs/quickstart.py --workdir=runs/quickstart
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import cli, quickstart
from webagent_jax.tracking.progress import open_progress


def main(argv: Sequence[str]) -> None:
    workdir = cli.begin(argv, default_workdir="runs/quickstart")
    with cli.told_plainly(), open_progress() as progress:
        summary = quickstart.quickstart(cli.playable_config(), workdir, progress)
    print(quickstart.table(summary))
    print(f"Open {workdir / 'report.html'}")


if __name__ == "__main__":
    app.run(main)
