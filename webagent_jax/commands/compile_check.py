"""Compile the programs of a run for TPUs or GPUs and check that they fit; needs neither.

webagent compile-check --config=webagent_r1:zero --topology=v5e:4x4 --workdir=runs/compile-check

Needs the compiler: pip install "webagent_jax[tpu]" or "webagent_jax[cuda]". If the directory
policy.path does not exist, the published model of that name is used. Takes minutes. Exits with 1 if
a program does not fit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.run_config import run_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files

_TOPOLOGY = flags.DEFINE_string(
    "topology", None, "Topology: v5e:4x4, v5p:2x2x2, or h100:8.", required=True
)
_DEVICES = flags.DEFINE_integer(
    "devices", None, "Number of devices to use; by default all of the topology.", lower_bound=1
)


def main(argv: Sequence[str]) -> None:
    """Print a table and write compile.json."""
    from webagent_jax import compile_check

    workdir = parse_workdir(argv)
    cfg = run_config()
    # Before the compilation, which takes minutes.
    atomic_files.make_workdir(workdir)
    try:
        report = compile_check.check(cfg, _TOPOLOGY.value, print, _DEVICES.value)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(str(error)) from error
    print(compile_check.table(report))
    atomic_files.write_json(workdir / "compile.json", report.as_json())
    if not report.fits:
        sys.exit(1)
