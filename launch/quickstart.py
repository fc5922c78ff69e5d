"""Trains a web agent on live Chromium, start to finish: the command behind `make quickstart`.

python launch/quickstart.py --config=configs/quickstart.py --workdir=runs/quickstart
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags

from webagent_jax import config, quickstart
from webagent_jax.report.progress import open_progress

_CONFIG = config_flags.DEFINE_config_file("config", "configs/quickstart.py", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", "runs/quickstart", "Folder for all that the run writes.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn tell of every step
    workdir = Path(_WORKDIR.value)
    with open_progress() as progress:
        summary = quickstart.quickstart(config.from_config_dict(_CONFIG.value), workdir, progress)
    print(quickstart.table(summary))
    print(f"Open {workdir / 'report.html'}")


if __name__ == "__main__":
    app.run(main)
