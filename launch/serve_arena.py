"""Serves the arena's sites for people, with a front page that lists sites and tasks.

python launch/serve_arena.py --port=8020

Every visit from the front page begins a world of its own, under a host such as
shop.w1.localhost:8020, which browsers find on this machine without being told.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import app, flags

from webagent_jax.arena import index_page

_PORT = flags.DEFINE_integer("port", 8020, "Port on 127.0.0.1.", lower_bound=1, upper_bound=65535)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    print(f"The arena is at http://localhost:{_PORT.value}/ (stop it with Ctrl-C)")
    try:
        index_page.serve_people(_PORT.value)
    except OSError as error:
        sys.exit(f"port {_PORT.value} cannot be used: {error.strerror}; choose another --port")


if __name__ == "__main__":
    app.run(main)
