"""Behaviour cloning on expert demonstrations. Resumes by itself from its workdir.

python launch/train_bc.py --config=configs/quickstart.py --workdir=runs/bc
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import cli, distributed
from webagent_jax.tracking.progress import open_progress
from webagent_jax.train.bc import train_bc


def main(argv: Sequence[str]) -> None:
    workdir = cli.begin(argv)
    with cli.told_plainly(), distributed.initialized(), open_progress() as progress:
        policy = train_bc(cli.playable_config(), workdir, progress)
    print(policy)


if __name__ == "__main__":
    app.run(main)
