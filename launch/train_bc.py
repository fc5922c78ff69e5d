"""Behaviour cloning on expert demonstrations. Resumes by itself from its workdir.

python launch/train_bc.py --config=configs/quickstart.py --workdir=runs/bc
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import launcher, multihost, train
from webagent_jax.report.progress import open_progress


def main(argv: Sequence[str]) -> None:
    workdir = launcher.begin(argv)
    with launcher.told_plainly(), multihost.joined(), open_progress() as progress:
        policy = train.bc(launcher.playable_config(), workdir, progress)
    print(policy)


if __name__ == "__main__":
    app.run(main)
