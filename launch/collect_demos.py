"""Collect demonstrations of training tasks: successful episodes of experts or of a policy.

python launch/collect_demos.py --config=configs/quickstart.py --workdir=runs/bc
python launch/collect_demos.py --config=configs/quickstart.py --workdir=runs/bc2 \
    --demo_source=policy --config.policy.path=runs/grpo/policy

`launch/train_bc.py` with the same workdir trains on them. The policy may be a chat endpoint
(docs/chat_endpoints.md).
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli, collect_demos, demos
from webagent_jax.collect_demos import DemoSource
from webagent_jax.tracking.progress import open_progress

_DEMO_SOURCE = flags.DEFINE_enum(
    "demo_source",
    "expert",
    typing.get_args(DemoSource),
    "Scripted experts of the suite, or the policy of the config.",
)


def main(argv: Sequence[str]) -> None:
    """Collect the demonstrations and print their number."""
    directory = cli.parse_workdir(argv) / "demos"
    cfg = cli.load_checked_config()
    if demos.exists(directory):
        raise app.UsageError(f"{directory} already contains demonstrations; use another --workdir")
    with cli.exit_on_user_error(), open_progress() as progress:
        collect_demos.collect_demos(
            cfg, directory, progress, typing.cast(DemoSource, _DEMO_SOURCE.value)
        )
    print(f"{len(demos.read(directory))} demonstrations in {directory}")


if __name__ == "__main__":
    app.run(main)
