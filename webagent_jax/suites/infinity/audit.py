"""Audit of verifiers: tasks that reward doing nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from webagent_jax.browser import BrowserPool
from webagent_jax.config import InfinityConfig
from webagent_jax.suites.infinity import catalog
from webagent_jax.suites.infinity.suite import Infinity
from webagent_jax.suites.infinity.verifier import verify_all
from webagent_jax.types import Task


def tasks_solved_at_reset(pool: BrowserPool, config: InfinityConfig) -> Iterator[Task]:
    """Yield the tasks whose verifiers accept the initial state of the app, including excluded ones.

    Raises:
        ConfigError: there is no checkout at the path.
        InfraError: an app does not open, or a verifier fails.
    """
    suite = Infinity(pool, config)
    try:
        for _, group in groupby(catalog.read_all(config.path), key=lambda task: task.sites):
            tasks = list(group)
            # One page per app, because all its tasks start in the same state.
            environment = suite.make_env(tasks[0])
            try:
                environment.reset()
                state = environment.read_state()
            finally:
                environment.close()
            verifiers = [Path(task.eval["verifier"]) for task in tasks]
            verdicts = verify_all(verifiers, state, config.verifier_timeout * len(tasks))
            yield from (task for task, is_solved in zip(tasks, verdicts, strict=True) if is_solved)
    finally:
        suite.close()
