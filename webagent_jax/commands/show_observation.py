"""Print the observation of a page as the policy reads it.

webagent show-observation --url=http://127.0.0.1:8000/ --format=webarena_lite

As in an episode, the page can load only its own origin and those of --origins. Options of the
browser are --config.browser.*, such as --config.browser.data_bbox=False.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.arguments import reject_arguments
from webagent_jax.cli.run_config import run_config
from webagent_jax.config import ConfigError, ObservationFormat

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
    from webagent_jax.browser.observe_url import observe_url

    reject_arguments(argv)
    config = run_config().browser
    observation_format = typing.cast(ObservationFormat, _FORMAT.value or config.observation_format)
    config = dataclasses.replace(config, observation_format=observation_format)
    try:
        print(observe_url(config, _URL.value, _ORIGINS.value).text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
