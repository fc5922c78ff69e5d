"""The suite that a config names. Whoever adds one adds it here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, SuiteConfig
from webagent_jax.suites import browsergym, miniwob, webarena
from webagent_jax.suites.arena import ArenaSuite, drafts
from webagent_jax.suites.browsergym import BrowserGym
from webagent_jax.suites.miniwob import MiniWob
from webagent_jax.suites.webarena import WebArena, catalog
from webagent_jax.types import Split, Suite, Task


def open_suite(
    config: SuiteConfig, browser: BrowserConfig, pool: BrowserPool, log: Callable[[str], None]
) -> Suite:
    """Its caller closes it; `log` is told what people should know.

    Raises:
        ConfigError: the suite lacks something; says what, and how to mend it.
        InfraError: a site of its own does not come up.
    """
    latency = config.latency_ms / 1000
    match config.name:
        case "miniwob":
            return MiniWob(pool, config.tasks, config.train_seeds, latency=latency)
        case "arena":
            return ArenaSuite(pool, config.tasks, config.arena, latency=latency)
        case "webarena_lite":
            return WebArena(pool, config.webarena, config.tasks, log)
        case "browsergym":
            return BrowserGym(
                config.tasks,
                origins=config.browsergym.origins,
                config=browser,
                python=config.browsergym.python,
                train_seeds=config.train_seeds,
            )


def check(config: SuiteConfig) -> None:
    """Raises ConfigError for what a suite lacks, before anything heavy is loaded for the run."""
    if config.name == "webarena_lite":
        webarena.read(config.webarena, config.tasks, os.environ)


def listed(config: SuiteConfig, split: Split) -> Iterator[Task]:
    """The tasks of a split without any browser or site; of generated worlds, the first of each.

    Raises ConfigError: the config names a task that there is not, or a file is missing.
    """
    match config.name:
        case "miniwob":
            yield from miniwob.first_tasks(config.tasks, split)
        case "arena":
            yield from (draft.task for draft in drafts(config.tasks, config.arena)[split].values())
        case "webarena_lite":
            tasks = catalog.read(config.webarena, config.tasks)
            yield from (tasks.task(name, split) for name in tasks.names(split))
        case "browsergym":
            yield from browsergym.first_tasks(config.tasks, split)
