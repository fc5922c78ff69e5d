"""Run the full pipeline: behavior cloning, M-GRPO, and an evaluation before and after each.

webagent quickstart
webagent quickstart --config=quickstart:smoke --workdir=runs/smoke

The config `quickstart:smoke` tests the installation in a minute or two. The same command resumes an
interrupted run.
"""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.tracking.progress import open_progress
from webagent_jax.tracking.workdir_lock import hold_lock


def main(argv: Sequence[str]) -> None:
    """Run the pipeline and print its results."""
    workdir, cfg = parse_workdir(argv, default_workdir="runs/quickstart"), load_checked_config()
    from webagent_jax import quickstart
    from webagent_jax.report import run_loader, terminal

    with hold_lock(workdir), open_progress() as progress:
        quickstart.quickstart(cfg, workdir, progress)
    terminal.print_summary(run_loader.load_run(workdir))
    print(f"Open {workdir / 'report.html'}")
