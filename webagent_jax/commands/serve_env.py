"""Serve the environments of a suite with OpenEnv's protocol, for trainers of other projects.

webagent serve-env --config=arena --split=train --port=8030

docs/browsergym.md shows a client.
"""

from __future__ import annotations

import socket
import typing
from collections.abc import Sequence
from contextlib import closing, suppress

from absl import flags

from webagent_jax.cli.arguments import reject_arguments
from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.types import Split

_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8030, "Port to listen on.", lower_bound=1, upper_bound=65535)
_SPLIT = flags.DEFINE_enum("split", "train", typing.get_args(Split), "Split of the tasks.")


def main(argv: Sequence[str]) -> None:
    """Serve the environments until Ctrl-C."""
    import uvicorn

    from webagent_jax.browser import BrowserPool
    from webagent_jax.gym.openenv import OpenEnvServer
    from webagent_jax.suites import registry

    reject_arguments(argv)
    address = f"{_HOST.value}:{_PORT.value}"
    with socket.create_server((_HOST.value, _PORT.value)) as listener:
        cfg = load_checked_config()
        with (
            BrowserPool(cfg.browser) as pool,
            closing(registry.make_suite(cfg.suite, cfg.browser, pool, print)) as suite,
            closing(
                OpenEnvServer(
                    suite,
                    typing.cast(Split, _SPLIT.value),
                    name=cfg.suite.label,
                    max_turns=cfg.rollout.max_turns,
                    max_sessions=cfg.rollout.max_concurrent_episodes,
                )
            ) as server,
            suppress(KeyboardInterrupt),
        ):
            print(
                f"OpenEnv server of {cfg.suite.label} at ws://{address}/ws (stop with Ctrl-C)",
                flush=True,
            )
            uvicorn.Server(uvicorn.Config(server.app, log_level="error")).run(sockets=[listener])
