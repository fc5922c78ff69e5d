"""Serve the sites of the arena for manual use, with an index page of sites and tasks.

python launch/serve_arena.py --port=8020

Each visit from the index page creates a new world. Its hostname, such as shop.w1.localhost:8020,
needs no DNS entry, because browsers resolve .localhost to this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import app, flags

from webagent_jax.arena import index_page

_PORT = flags.DEFINE_integer(
    "port", 8020, "Port to listen on, at 127.0.0.1.", lower_bound=1, upper_bound=65535
)


def main(argv: Sequence[str]) -> None:
    """Serve the arena until Ctrl-C."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    print(f"The arena runs at http://localhost:{_PORT.value}/ (stop with Ctrl-C)")
    try:
        index_page.serve_forever(_PORT.value)
    except OSError as error:
        sys.exit(f"cannot listen on port {_PORT.value}: {error.strerror}; use another --port")


if __name__ == "__main__":
    app.run(main)
