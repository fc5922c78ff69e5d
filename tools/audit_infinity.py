"""List the tasks of a checkout of WebArena-Infinity that reward doing nothing.

python tools/audit_infinity.py DIR

Opens every app once and runs all verifiers on its state. Exits with 1 if the suite does not exclude
a listed task (webagent_jax/suites/infinity/exclusions.py).
"""

from __future__ import annotations

import argparse
import sys

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, InfinityConfig
from webagent_jax.suites.infinity import audit, catalog
from webagent_jax.suites.infinity.exclusions import EXCLUDED_TASKS


def main() -> None:
    """Print one line per task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", help="checkout of WebArena-Infinity")
    config = InfinityConfig(path=parser.parse_args().path, test_apps=())
    num_new = 0
    with BrowserPool(BrowserConfig()) as pool:
        try:
            for task in audit.tasks_solved_at_reset(pool, config):
                name = catalog.task_name(task)
                is_new = name not in EXCLUDED_TASKS
                num_new += is_new
                print(f"{'NEW' if is_new else 'excluded':9} {name}  {task.intent}")
        except ConfigError as error:
            sys.exit(str(error))
    sys.exit(f"{num_new} tasks reward doing nothing and are not excluded" if num_new else 0)


if __name__ == "__main__":
    main()
