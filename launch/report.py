"""Rebuilds report.html from the work directory of a run, finished or under way.

python launch/report.py --workdir=runs/quickstart
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app

from webagent_jax import launcher
from webagent_jax.report import html


def main(argv: Sequence[str]) -> None:
    try:
        path = html.write_report(launcher.begin(argv))
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    print(path)


if __name__ == "__main__":
    app.run(main)
