"""Print the observation of a page as the policy reads it.

python launch/show_observation.py --url=http://127.0.0.1:8000/ --format=webarena_lite

As in an episode, the page can load only its own origin and those of --origins. Options of the
browser are --config.browser.*, such as --config.browser.data_bbox=False.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli
from webagent_jax.browser import ChromiumMissing
from webagent_jax.browser.observe_url import observe_url
from webagent_jax.config import ObservationFormat
from webagent_jax.types import InfraError

_URL = flags.DEFINE_string("url", None, "URL of the page.", required=True)
_FORMAT = flags.DEFINE_enum(
    "format",
    None,
    typing.get_args(ObservationFormat),
    "Observation format; by default that of the config.",
)
_ORIGINS = flags.DEFINE_list("origins", [], "Other origins that the page may load, as host:port.")


def main(argv: Sequence[str]) -> None:
    """Print the observation."""
    cli.parse_workdir(argv, default_workdir=".")  # writes no files
    config = cli.run_config().browser
    observation_format = typing.cast(ObservationFormat, _FORMAT.value or config.observation_format)
    config = dataclasses.replace(config, observation_format=observation_format)
    try:
        print(observe_url(config, _URL.value, _ORIGINS.value).text)
    except (ValueError, InfraError, ChromiumMissing) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    app.run(main)
