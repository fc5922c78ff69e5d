"""Demonstrations of training tasks, played live: the episodes that earned their reward.

python launch/collect_demos.py --config=configs/quickstart.py --workdir=runs/bc
python launch/collect_demos.py --config=configs/quickstart.py --workdir=runs/again --by=policy \
    --config.policy.path=runs/grpo/policy

`launch/train_bc.py` with the same workdir clones them. The policy may be an endpoint:
docs/endpoints.md.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli, collect_demos, demos
from webagent_jax.collect_demos import By
from webagent_jax.tracking.progress import open_progress

_BY = flags.DEFINE_enum("by", "expert", typing.get_args(By), "Scripted experts, or the policy.")


def main(argv: Sequence[str]) -> None:
    directory = cli.begin(argv) / "demos"
    cfg = cli.playable_config()
    if demos.exists(directory):
        raise app.UsageError(f"{directory} holds demonstrations already; choose another workdir")
    with cli.told_plainly(), open_progress() as progress:
        collect_demos.collect_demos(cfg, directory, progress, typing.cast(By, _BY.value))
    print(f"{len(demos.read(directory))} demonstrations in {directory}")


if __name__ == "__main__":
    app.run(main)
