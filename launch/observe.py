"""Prints what the agent would see of a page.

python launch/observe.py --url=http://127.0.0.1:8000/ --format=webarena_lite

The page reaches its own host and those of --origins, as in an episode. The browser is set up by
--config.browser.*, such as --config.browser.data_bbox=False.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli
from webagent_jax.browser import ChromiumMissing
from webagent_jax.browser.observe_url import look
from webagent_jax.config import ObservationFormat
from webagent_jax.types import InfraError

_URL = flags.DEFINE_string("url", None, "Address of the page.", required=True)
_FORMAT = flags.DEFINE_enum(
    "format", None, typing.get_args(ObservationFormat), "How it is told; else as the config says."
)
_ORIGINS = flags.DEFINE_list("origins", [], "More hosts to load from, as host:port.")


def main(argv: Sequence[str]) -> None:
    cli.begin(argv, default_workdir=".")  # nothing is written
    config = cli.run_config().browser
    chosen = typing.cast(ObservationFormat, _FORMAT.value or config.observation)
    config = dataclasses.replace(config, observation=chosen)
    try:
        print(look(config, _URL.value, _ORIGINS.value).text)
    except (ValueError, InfraError, ChromiumMissing) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    app.run(main)
