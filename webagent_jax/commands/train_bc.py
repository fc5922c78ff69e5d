"""Train a policy with behavior cloning on demonstrations; resumes from its workdir.

webagent train bc --config=quickstart --workdir=runs/bc
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
    from webagent_jax.train.bc import train_bc

    with (
        distributed.initialized(),
        hold_lock(workdir, distributed.process_index()),
        open_progress() as progress,
    ):
        policy = train_bc(cfg, workdir, progress)
    print(policy)
