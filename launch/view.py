"""Serve a page with all runs of a directory: success, options, curves and reports, updated live.

python launch/view.py runs
python launch/view.py runs/quickstart --port=8031

Open http://localhost:8030/. Only this machine can connect.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging

from webagent_jax.report import server

_PORT = flags.DEFINE_integer(
    "port", 8030, "Port to listen on, at 127.0.0.1.", lower_bound=1, upper_bound=65535
)


def main(argv: Sequence[str]) -> None:
    """Serve the runs until Ctrl-C."""
    if len(argv) != 2:
        raise app.UsageError("pass one directory of runs, such as: python launch/view.py runs")
    root = Path(argv[1])
    if not root.is_dir():
        raise app.UsageError(f"{root} is not a directory: pass the directory of your runs")
    logging.set_verbosity(logging.WARNING)  # uvicorn logs its start at INFO
    print(f"Runs in {root}: open http://localhost:{_PORT.value}/ (stop with Ctrl-C)", flush=True)
    try:
        server.serve_forever(root, _PORT.value)
    except OSError as error:
        sys.exit(f"cannot listen on port {_PORT.value}: {error.strerror}; use another --port")


if __name__ == "__main__":
    app.run(main)
