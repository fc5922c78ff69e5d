"""Serve the sites of the arena for manual use, with an index page of sites and tasks.

webagent serve-arena --port=8020

Each visit from the index page creates a new world. Its hostname, such as shop.w1.localhost:8020,
needs no DNS entry, because browsers resolve .localhost to this machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.arguments import reject_arguments

_PORT = flags.DEFINE_integer(
    "port", 8020, "Port to listen on, at 127.0.0.1.", lower_bound=1, upper_bound=65535
)


def main(argv: Sequence[str]) -> None:
    """Serve the arena until Ctrl-C."""
    from webagent_jax.arena import index_page

    reject_arguments(argv)
    print(f"The arena runs at http://localhost:{_PORT.value}/ (stop with Ctrl-C)", flush=True)
    index_page.serve_forever(_PORT.value)
