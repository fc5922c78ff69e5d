r"""Write demonstrations for BC: import WebRL's or successes of training runs, or merge workdirs.

webagent import demos --webrl=web_policy_sft.json --workdir=runs/r1/bc
webagent train bc --config=webagent_r1:r1 --workdir=runs/r1/bc \
    --config.policy.path=weights/Qwen2.5-3B-Instruct

--successes takes the shortest success of each task in training runs (rejection sampling, a step of
expert iteration):

webagent import demos --successes=runs/grpo --workdir=runs/bc2

--merge combines demonstrations that were collected separately, for example on several machines:

webagent import demos --merge=runs/demos1,runs/demos2 --workdir=runs/bc
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.config import ConfigError
from webagent_jax.tracking.workdir_lock import hold_lock

_WEBRL = flags.DEFINE_string("webrl", None, "JSON file of WebRL conversations.")
_SUCCESSES = flags.DEFINE_list(
    "successes", [], "Workdirs of training runs: write the shortest success of each task."
)
_MERGE = flags.DEFINE_list(
    "merge",
    [],
    "Workdirs to merge demonstrations from, in order. If several have demonstrations of one task "
    "(suite, sites, instruction, start page and seed), those of the first are kept.",
)


def main(argv: Sequence[str]) -> None:
    """Write the demonstrations and print the number of skipped ones."""
    from webagent_jax import demos, logged_episodes
    from webagent_jax.demos import webrl

    workdir = parse_workdir(argv)
    directory = workdir / "demos"
    if sum(map(bool, (_WEBRL.value, _SUCCESSES.value, _MERGE.value))) != 1:
        raise ConfigError(
            "set one of --webrl=FILE, --successes=WORKDIR,WORKDIR and --merge=WORKDIR,WORKDIR"
        )
    with hold_lock(workdir):
        if _WEBRL.value:
            imported = webrl.load(_WEBRL.value)
        elif _SUCCESSES.value:
            imported = logged_episodes.import_successes(list(map(Path, _SUCCESSES.value)))
        else:
            imported = demos.merge([Path(source) / "demos" for source in _MERGE.value])
        for reason, count in imported.skipped.items():
            print(f"{count} skipped: {reason}")
        demos.write(directory, imported.demonstrations)
    print(f"{len(imported.demonstrations)} demonstrations in {directory}")
