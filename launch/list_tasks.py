"""List the tasks of a suite, one per line; needs no browser and no site.

python launch/list_tasks.py --suite=arena --split=test
python launch/list_tasks.py --suite=arena --split=train --json > tasks.jsonl
python launch/list_tasks.py --config=configs/webagent_r1.py --suite=webarena_lite --split=test

Of tasks that a suite generates from seeds, only the first per name is listed.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli
from webagent_jax.config import SuiteName
from webagent_jax.suites import registry
from webagent_jax.types import Split, Task

_SUITE = flags.DEFINE_enum(
    "suite", None, typing.get_args(SuiteName), "Suite; by default that of the config."
)
_SPLIT = flags.DEFINE_enum("split", "test", typing.get_args(Split), "Split of the tasks.")
_JSON = flags.DEFINE_bool(
    "json", False, "Print all task fields as JSON instead of id and instruction."
)


def main(argv: Sequence[str]) -> None:
    """Print the tasks."""
    cli.parse_workdir(argv, default_workdir=".")  # writes no files
    with cli.exit_on_user_error():
        suite = cli.run_config().suite
        if _SUITE.value is not None and (suite.factory or _SUITE.value != suite.name):
            # suite.tasks of the config contains names of another suite.
            name = typing.cast(SuiteName, _SUITE.value)
            suite = dataclasses.replace(suite, name=name, factory="", tasks=())
        for task in registry.list_tasks(suite, typing.cast(Split, _SPLIT.value)):
            print(json.dumps(dataclasses.asdict(task)) if _JSON.value else _line(task))


def _line(task: Task) -> str:
    return f"{task.id}  {task.intent}".rstrip()


if __name__ == "__main__":
    app.run(main)
