"""Rebuilds report.html and report/ from the work directory of a run, finished or under way.

python launch/report.py --workdir=runs/quickstart
python launch/report.py --workdir=runs/seed0 --also=runs/seed1,runs/other
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags
from rich.console import Console

from webagent_jax import cli
from webagent_jax.report import html, run_loader, terminal

_ALSO = flags.DEFINE_list(
    "also", [], "Other work directories; runs that differ only in their seed share a curve."
)


def main(argv: Sequence[str]) -> None:
    path = cli.begin(argv)
    try:
        page = html.write_report(path, [Path(other) for other in _ALSO.value])
        run = run_loader.load(path)
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    Console(highlight=False, markup=False, soft_wrap=True).print(terminal.summary(run))
    print(f"Open {page}")


if __name__ == "__main__":
    app.run(main)
