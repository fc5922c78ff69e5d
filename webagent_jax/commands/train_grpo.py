"""Train a policy with multi-turn GRPO (M-GRPO); resumes from its workdir.

webagent train grpo --config=quickstart --config.policy.path=runs/bc/policy --workdir=runs/grpo
"""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax import distributed
from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.tracking.progress import open_progress
from webagent_jax.tracking.workdir_lock import hold_lock


def main(argv: Sequence[str]) -> None:
    """Run the training and print the folder of the policy."""
    workdir, cfg = parse_workdir(argv), load_checked_config()
    from webagent_jax.train.grpo import train_grpo

    with (
        distributed.initialized(),
        hold_lock(workdir, distributed.process_index()),
        open_progress() as progress,
    ):
        policy = train_grpo(cfg, workdir, progress)
    print(policy)
