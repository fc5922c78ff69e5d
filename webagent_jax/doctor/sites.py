"""The sites of the config's suite: embedded ones show a task, WebArena's are asked how they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from webagent_jax.browser import BrowserPool, ChromiumMissing
from webagent_jax.config import ConfigError, RunConfig, SuiteConfig
from webagent_jax.doctor.findings import Finding, broken, from_error, ok, warning
from webagent_jax.suites import webarena
from webagent_jax.suites.registry import open_suite
from webagent_jax.suites.webarena import sites
from webagent_jax.types import InfraError

_PROBE_TIMEOUT = 20.0  # seconds
_PROBES_AT_ONCE = 8


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    del workdir
    try:
        if cfg.suite.name == "webarena_lite":
            yield from _webarena(cfg.suite)
        else:
            yield _first_task(cfg)
    except (ConfigError, InfraError) as error:
        yield from_error(cfg.suite.name, error, "see the documentation of the suite")


def _first_task(cfg: RunConfig) -> Finding:
    """Raises ConfigError and InfraError."""
    name = cfg.suite.name
    try:
        with BrowserPool(replace(cfg.browser, processes=1)) as pool:
            suite = open_suite(cfg.suite, cfg.browser, pool, lambda line: None)
            try:
                names = suite.names("test")
                task = suite.task(names[0], "test", 0)
                world = suite.open(task)
                elements = len(world.start().observation.elements)
                world.close()
            finally:
                suite.close()
    except ChromiumMissing:
        return broken(name, "not tried without a browser", "mend the browser first")
    return ok(name, f"{len(names)} names of tasks; {task.id} opened, with {elements} elements")


def _webarena(config: SuiteConfig) -> Iterator[Finding]:
    """Raises ConfigError."""
    tasks, addresses = webarena.read(config.webarena, config.tasks, os.environ)
    for note in tasks.notes:
        yield warning(config.name, note, "docs/webarena.md tells what these tasks need")
    pairs = [(site, address) for site, replicas in addresses.items() for address in replicas]
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as threads:
        probed = threads.map(lambda at: sites.trouble(at[0], at[1], _PROBE_TIMEOUT), pairs)
        for (site, address), trouble in zip(pairs, probed, strict=True):
            if trouble:
                yield broken(site, trouble, "third_party/webarena/README.md brings the sites up")
            else:
                yield ok(site, f"{address} answers")
