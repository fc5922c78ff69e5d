"""Tests of the error handling of the launchers."""

from __future__ import annotations

import pytest

from webagent_jax import cli
from webagent_jax.browser import ChromiumMissing
from webagent_jax.config import ConfigError
from webagent_jax.learn import NonFiniteStepError
from webagent_jax.train.metrics import GuardTripped
from webagent_jax.types import InfraError


@pytest.mark.parametrize(
    "error", [ChromiumMissing, ConfigError, GuardTripped, InfraError, NonFiniteStepError]
)
def test_user_error_exits_with_message(error):
    with pytest.raises(SystemExit, match="raise the limit"), cli.exit_on_user_error():
        raise error("raise the limit")


def test_other_error_keeps_traceback():
    with pytest.raises(KeyError), cli.exit_on_user_error():
        raise KeyError("x")
