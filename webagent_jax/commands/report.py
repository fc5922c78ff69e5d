"""Rebuild report.html and report/ from the workdir of a finished or running run.

webagent report --workdir=runs/quickstart
webagent report --workdir=runs/seed0 --extra_workdirs=runs/seed1,runs/other
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.config import ConfigError

_EXTRA_WORKDIRS = flags.DEFINE_list(
    "extra_workdirs",
    [],
    "Other workdirs to include; runs that differ only in the seed share a curve.",
)


def main(argv: Sequence[str]) -> None:
    """Write the report and print a summary."""
    from webagent_jax.report import html, run_list, run_loader, terminal

    path = parse_workdir(argv)
    extra_workdirs = [Path(other) for other in _EXTRA_WORKDIRS.value]
    for workdir in (path, *extra_workdirs):
        files = run_loader.source_files(workdir)
        # A policy has a config.json too, and no other of these files.
        has_results = any(file.name != "config.json" for file in files)
        if not has_results and not run_list.is_workdir(workdir):
            raise ConfigError(
                f"{workdir} is not a run: pass the --workdir of a training or evaluation"
            )
    try:
        page = html.write_report(path, extra_workdirs)
        run = run_loader.load_run(path)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(str(error)) from error
    terminal.print_summary(run)
    print(f"Open {page}")
