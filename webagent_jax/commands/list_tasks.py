"""List the tasks of a suite, one per line; needs no browser and no site.

webagent list-tasks --suite=arena --split=test
webagent list-tasks --suite=arena --split=train --json > tasks.jsonl
webagent list-tasks --config=webagent_r1 --suite=webarena_lite --split=test

For tasks that a suite generates from seeds, only the first per name is listed.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.arguments import reject_arguments
from webagent_jax.cli.run_config import run_config
from webagent_jax.config import SuiteName
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
    from webagent_jax.suites import registry

    reject_arguments(argv)
    suite = run_config().suite
    if _SUITE.value is not None and (suite.factory or _SUITE.value != suite.name):
        # suite.tasks of the config contains names of another suite.
        name = typing.cast(SuiteName, _SUITE.value)
        suite = dataclasses.replace(suite, name=name, factory="", tasks=())
    for task in registry.list_tasks(suite, typing.cast(Split, _SPLIT.value)):
        print(json.dumps(dataclasses.asdict(task)) if _JSON.value else _line(task))


def _line(task: Task) -> str:
    return f"{task.id}  {task.intent}".rstrip()
