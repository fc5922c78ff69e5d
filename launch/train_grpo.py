"""Multi-turn GRPO on live pages. Resumes by itself from its workdir.

python launch/train_grpo.py --config=configs/quickstart.py --config.policy.path=runs/bc/policy \
    --workdir=runs/grpo
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import cli, distributed
from webagent_jax.tracking.progress import open_progress
from webagent_jax.train.grpo import train_grpo


def main(argv: Sequence[str]) -> None:
    workdir = cli.begin(argv)
    with cli.told_plainly(), distributed.initialized(), open_progress() as progress:
        policy = train_grpo(cli.playable_config(), workdir, progress)
    print(policy)


if __name__ == "__main__":
    app.run(main)
