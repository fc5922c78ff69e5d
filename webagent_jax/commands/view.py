"""Serve a page with all runs of a directory: success, options, curves and reports, updated live.

webagent view runs
webagent view runs/quickstart --port=8041

Open http://localhost:8040/. Only this machine can connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.config import ConfigError

_PORT = flags.DEFINE_integer(
    "port", 8040, "Port to listen on, at 127.0.0.1.", lower_bound=1, upper_bound=65535
)


def main(argv: Sequence[str]) -> None:
    """Serve the runs until Ctrl-C."""
    from webagent_jax.report import server

    if len(argv) != 2:
        raise ConfigError("name one directory of runs, such as: webagent view runs")
    root = Path(argv[1])
    if not root.is_dir():
        raise ConfigError(f"{root} is not a directory: name the directory of your runs")
    print(f"Runs in {root}: open http://localhost:{_PORT.value}/ (stop with Ctrl-C)", flush=True)
    try:
        server.serve_forever(root, _PORT.value)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on port {_PORT.value}: {error.strerror}; use another --port"
        ) from error
