"""Train a policy with behavior cloning on demonstrations; resumes from its workdir.

python launch/train_bc.py --config=configs/quickstart.py --workdir=runs/bc
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import cli, distributed
from webagent_jax.tracking.progress import open_progress
from webagent_jax.train.bc import train_bc


def main(argv: Sequence[str]) -> None:
    """Run the training and print the folder of the policy."""
    workdir = cli.parse_workdir(argv)
    with cli.exit_on_user_error(), distributed.initialized(), open_progress() as progress:
        policy = train_bc(cli.load_checked_config(), workdir, progress)
    print(policy)


if __name__ == "__main__":
    app.run(main)
