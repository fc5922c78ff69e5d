"""Tests of the console command: help, errors and exit statuses."""

from __future__ import annotations

import pytest

from webagent_jax.browser import ChromiumMissing
from webagent_jax.cli import errors
from webagent_jax.config import ConfigError
from webagent_jax.learn import NonFiniteStepError
from webagent_jax.train.metrics import GuardTripped
from webagent_jax.types import InfraError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ChromiumMissing, errors.MISTAKE),
        (ConfigError, errors.MISTAKE),
        (GuardTripped, errors.STOPPED),
        (InfraError, errors.STOPPED),
        (NonFiniteStepError, errors.STOPPED),
    ],
)
def test_user_error_exits_with_message(error, status, capsys):
    with pytest.raises(SystemExit) as exit_info, errors.exit_on_user_error():
        raise error("raise the limit")
    assert exit_info.value.code == status
    assert capsys.readouterr().err == "error: raise the limit\n"


def test_other_error_keeps_traceback():
    with pytest.raises(KeyError), errors.exit_on_user_error():
        raise KeyError("x")
