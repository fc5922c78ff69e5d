r"""Relabel failed episodes on the arena with the tasks that they solve, as demonstrations.

webagent relabel --config=arena:smollm2 --episodes=runs/arena/grpo --workdir=runs/hindsight
webagent train bc --config=arena:smollm2 --workdir=runs/hindsight \
    --config.policy.path=runs/arena/grpo/policy

Tasks are drawn from all templates; those of the test split are excluded. Every relabeled episode is
replayed in a browser under its new task, and the evaluators of that task decide (docs/arena.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.config import ConfigError
from webagent_jax.tracking.progress import open_progress
from webagent_jax.tracking.workdir_lock import hold_lock

_EPISODES = flags.DEFINE_string(
    "episodes", None, "Workdir of a training run on the arena.", required=True
)
_TASKS_PER_TEMPLATE = flags.DEFINE_integer(
    "tasks_per_template", 300, "Maximum number of tasks drawn from a template.", lower_bound=1
)


def main(argv: Sequence[str]) -> None:
    """Write the demonstrations and print their number."""
    workdir, cfg = parse_workdir(argv), load_checked_config()
    directory = workdir / "demos"
    from webagent_jax import demos, relabel_episodes

    if demos.exists(directory):
        raise ConfigError(f"{directory} already contains demonstrations; use another --workdir")
    failures = relabel_episodes.read_failures(Path(_EPISODES.value))
    with hold_lock(workdir), open_progress() as progress:
        relabel_episodes.relabel_episodes(
            cfg, failures, directory, progress, _TASKS_PER_TEMPLATE.value
        )
    print(f"{len(demos.read(directory))} demonstrations in {directory}")
