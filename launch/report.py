"""Rebuilds report.html from the work directory of a run, finished or under way.

python launch/report.py --workdir=runs/quickstart
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax.report import html

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    try:
        path = html.write_report(Path(_WORKDIR.value))
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    print(path)


if __name__ == "__main__":
    app.run(main)
