"""Looks whether everything is there that a run needs, and says how to mend what is not.

python launch/doctor.py --config=configs/quickstart.py
python launch/doctor.py --config=configs/webagent_r1.py:zero --workdir=runs/zero --output=json

A model behind an endpoint is asked for one short reply. Exit status 1 when something is broken.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli, doctor

_OUTPUT = flags.DEFINE_enum("output", "table", ("table", "json"), "JSON has a finding a line.")


def main(argv: Sequence[str]) -> None:
    workdir = cli.begin(argv, default_workdir="runs")
    findings = doctor.examine(cli.run_config(), workdir)
    if _OUTPUT.value == "json":
        for finding in findings:
            print(json.dumps(dataclasses.asdict(finding)))
    else:
        print(doctor.table(findings))
    if not doctor.is_well(findings):
        sys.exit(1)


if __name__ == "__main__":
    app.run(main)
