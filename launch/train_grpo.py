"""Train a policy with multi-turn GRPO (M-GRPO); resumes from its workdir.

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
    """Run the training and print the folder of the policy."""
    workdir = cli.parse_workdir(argv)
    with cli.exit_on_user_error(), distributed.initialized(), open_progress() as progress:
        policy = train_grpo(cli.load_checked_config(), workdir, progress)
    print(policy)


if __name__ == "__main__":
    app.run(main)
