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
from webagent_jax.config import ConfigError, RunConfig, SuiteConfig, SuiteName
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
    cfg = run_config()
    suite = cfg.suite
    if _SUITE.value is not None and (suite.factory or _SUITE.value != suite.name):
        name = typing.cast(SuiteName, _SUITE.value)
        # suite.tasks of the config contains names of another suite, and not every suite has delays.
        suite = dataclasses.replace(suite, name=name, factory="", tasks=(), response_delay_ms=0.0)
        suite = _check_suite(cfg, suite)
    for task in registry.list_tasks(suite, typing.cast(Split, _SPLIT.value), cfg.browser):
        print(json.dumps(dataclasses.asdict(task)) if _JSON.value else _line(task))


def _check_suite(cfg: RunConfig, suite: SuiteConfig) -> SuiteConfig:
    """Return the suite in place of that of the config.

    Raises:
        ConfigError: the suite needs options that the config does not set.
    """
    try:
        return dataclasses.replace(cfg, suite=suite).suite
    except ConfigError as error:
        raise ConfigError(
            f"--suite={suite.name} omits suite.tasks of the config: {error}; set "
            f"--config.suite.name={suite.name} instead of --suite"
        ) from error


def _line(task: Task) -> str:
    return f"{task.id}  {task.intent}".rstrip()
