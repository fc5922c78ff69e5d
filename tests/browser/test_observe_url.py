"""Tests of `webagent show-observation`."""

from __future__ import annotations

from typing import Any

import pytest
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import config
from webagent_jax.browser import ChromiumMissingError
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.types import InfraError

LONG_TIMEOUTS = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)  # for a busy host


@pytest.mark.browser
def test_launcher_prints_observation(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main = load_main("show_observation")
    settings = config.to_config_dict(config.RunConfig(browser=LONG_TIMEOUTS))
    for format_name, expected in (
        ("compact", "button Go [1]"),
        ("webarena_lite", '<button id="1" '),
    ):
        with flagsaver.flagsaver(
            url=site.add_page("<button>Go</button>"), format=format_name, config=settings
        ):
            main(["observe.py"])
        assert expected in capsys.readouterr().out


@pytest.mark.browser
def test_launcher_reports_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    main = load_main("show_observation")
    settings = config.to_config_dict(config.RunConfig(browser=LONG_TIMEOUTS))
    for url, error, message in (
        ("ftp://x/", ConfigError, "is not an http address"),
        ("http://127.0.0.1:1x/", ConfigError, "is not an http address"),
        ("http://127.0.0.1:1/", InfraError, "the browser failed: "),
    ):
        with flagsaver.flagsaver(url=url, config=settings), pytest.raises(error, match=message):
            main(["observe.py"])
    with flagsaver.flagsaver(config=settings), pytest.raises(ConfigError, match="extra"):
        main(["observe.py", "extra"])
    monkeypatch.setenv("WEBAGENT_CHROMIUM", "/no/chromium")
    with (
        flagsaver.flagsaver(url="http://127.0.0.1:1/", config=settings),
        pytest.raises(ChromiumMissingError, match="is not a program; fix it with"),
    ):
        main(["observe.py"])
