"""Compile the programs of a run for a TPU topology and check that they fit; needs no TPU.

python launch/compile_check.py --config=configs/webagent_r1.py:zero --topology=v5e:4x4 \
    --workdir=runs/compile-check

Needs the TPU compiler: pip install "webagent_jax[tpu]". If the directory policy.path does not
exist, the published model of that name is used. Takes minutes. Exits with 1 if a program does not
fit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli, compile_check

_TOPOLOGY = flags.DEFINE_string(
    "topology", None, "TPU topology, such as v5e:4x4 or v5p:2x2x2.", required=True
)
_DEVICES = flags.DEFINE_integer(
    "devices", None, "Number of devices to use; by default all of the topology.", lower_bound=1
)


def main(argv: Sequence[str]) -> None:
    """Write compile.json and print a table."""
    workdir = cli.parse_workdir(argv)
    try:
        report = compile_check.check(cli.run_config(), _TOPOLOGY.value, print, _DEVICES.value)
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "compile.json").write_text(json.dumps(report.as_json(), indent=2) + "\n")
    print(compile_check.table(report))
    if not report.fits:
        sys.exit(1)


if __name__ == "__main__":
    app.run(main)
