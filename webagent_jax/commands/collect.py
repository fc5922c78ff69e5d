r"""Collect demonstrations of training tasks: successful episodes of experts or of a policy.

webagent collect --config=quickstart --workdir=runs/bc
webagent collect --config=quickstart --workdir=runs/bc2 --demo_source=policy \
    --config.policy.path=runs/grpo/policy

`webagent train bc` with the same workdir trains on them. The policy may be a chat endpoint
(docs/chat_endpoints.md).
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.config import ConfigError
from webagent_jax.tracking.progress import open_progress
from webagent_jax.tracking.workdir_lock import hold_lock
from webagent_jax.types import DemoSource

_DEMO_SOURCE = flags.DEFINE_enum(
    "demo_source",
    "expert",
    typing.get_args(DemoSource),
    "Scripted experts of the suite, or the policy of the config.",
)


def main(argv: Sequence[str]) -> None:
    """Collect the demonstrations and print their number."""
    workdir, cfg = parse_workdir(argv), load_checked_config()
    directory = workdir / "demos"
    from webagent_jax import demos
    from webagent_jax.collect_demos import collect_demos

    if demos.exists(directory):
        raise ConfigError(f"{directory} already contains demonstrations; use another --workdir")
    with hold_lock(workdir), open_progress() as progress:
        collect_demos(cfg, directory, progress, typing.cast(DemoSource, _DEMO_SOURCE.value))
    print(f"{len(demos.read(directory))} demonstrations in {directory}")
