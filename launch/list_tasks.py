"""The tasks of a suite, a line each; of generated worlds, the first. Needs no browser, no site.

python launch/list_tasks.py --suite=arena --split=test
python launch/list_tasks.py --suite=arena --split=train --json > tasks.jsonl
python launch/list_tasks.py --config=configs/webagent_r1.py --suite=webarena_lite --split=test
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

_SUITE = flags.DEFINE_enum("suite", None, typing.get_args(SuiteName), "Else the config's.")
_SPLIT = flags.DEFINE_enum("split", "test", typing.get_args(Split), "Which tasks.")
_JSON = flags.DEFINE_bool("json", False, "Whole tasks as JSON instead of name and instruction.")


def main(argv: Sequence[str]) -> None:
    cli.begin(argv, default_workdir=".")  # nothing is written
    with cli.told_plainly():
        suite = cli.run_config().suite
        if _SUITE.value not in (None, suite.name):  # whose tasks are named otherwise
            name = typing.cast(SuiteName, _SUITE.value)
            suite = dataclasses.replace(suite, name=name, tasks=())
        for task in registry.listed(suite, typing.cast(Split, _SPLIT.value)):
            print(json.dumps(dataclasses.asdict(task)) if _JSON.value else _line(task))


def _line(task: Task) -> str:
    return f"{task.id}  {task.intent}".rstrip()


if __name__ == "__main__":
    app.run(main)
