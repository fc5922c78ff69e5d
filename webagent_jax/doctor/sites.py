"""Check of the suite's sites: the first task of an embedded suite, the health of WebArena sites."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from webagent_jax.browser import BrowserPool, ChromiumMissingError
from webagent_jax.config import ConfigError, RunConfig, SuiteConfig
from webagent_jax.doctor.check_result import CheckResult, failure, from_error, ok, warning
from webagent_jax.suites import webarena
from webagent_jax.suites.registry import make_suite, require_task_names
from webagent_jax.suites.webarena import sites
from webagent_jax.types import InfraError

_PROBE_TIMEOUT = 20.0  # seconds


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the sites of the suite."""
    del workdir
    try:
        if cfg.suite.name == "webarena_lite" and not cfg.suite.factory:
            yield from _check_webarena(cfg.suite)
        else:
            yield _open_first_task(cfg)
    except (ConfigError, InfraError) as error:
        yield from_error(
            cfg.suite.label,
            error,
            "start the site, or check its address and SiteTask.start (docs/your_site.md)"
            if cfg.suite.factory
            else "see the documentation of the suite in docs/",
        )


def _open_first_task(cfg: RunConfig) -> CheckResult:
    """Open the first test task of the suite.

    Raises:
        ConfigError: the suite lacks a requirement, or has no test tasks.
        InfraError: a site fails.
    """
    name = cfg.suite.label
    try:
        with BrowserPool(replace(cfg.browser, num_processes=1)) as pool:
            suite = make_suite(cfg.suite, cfg.browser, pool, lambda line: None)
            try:
                task_names = require_task_names(suite, "test")
                task = suite.task(task_names[0], "test", 0)
                environment = suite.make_env(task)
                try:
                    elements = len(environment.reset().observation.elements)
                finally:
                    environment.close()
            finally:
                suite.close()
    except ChromiumMissingError:
        return failure(name, "not checked without a browser", "fix the browser first")
    return ok(name, f"{len(task_names)} task names; {task.id} opened, with {elements} elements")


def _check_webarena(config: SuiteConfig) -> Iterator[CheckResult]:
    """Yield a result for each note about the tasks and for each replica of a site.

    Raises:
        ConfigError: a task file or an address is not valid.
    """
    tasks, addresses = webarena.read(config.webarena, config.tasks, os.environ)
    for note in tasks.notes:
        yield warning(config.name, note, "see docs/webarena.md for what these tasks need")
    for site, address, problem in sites.health_errors(addresses, _PROBE_TIMEOUT):
        if problem:
            yield failure(site, problem, "start it as in third_party/webarena/README.md")
        else:
            yield ok(site, f"{address} answers")
