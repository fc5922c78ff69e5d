"""Check the requirements of a run and print how to fix those that fail.

webagent doctor --config=quickstart
webagent doctor --config=webagent_r1:zero --workdir=runs/zero --format=json

Sends one short request to a chat endpoint, if the config has one. Exits with 1 if a check fails.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.run_config import run_config
from webagent_jax.cli.workdir import parse_workdir

_FORMAT = flags.DEFINE_enum(
    "format", "table", ("table", "json"), "Output format; json prints one result per line."
)


def main(argv: Sequence[str]) -> None:
    """Run the checks and print their results."""
    workdir, cfg = parse_workdir(argv, default_workdir="runs"), run_config()
    from webagent_jax import doctor

    results = doctor.run_checks(cfg, workdir)
    if _FORMAT.value == "json":
        for result in results:
            print(json.dumps(dataclasses.asdict(result)))
    else:
        print(doctor.table(results))
    if not doctor.all_passed(results):
        sys.exit(1)
