"""launch/show_observation.py: one look at one page."""

from __future__ import annotations

from typing import Any

import pytest
from absl import app
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import config
from webagent_jax.config import BrowserConfig

PATIENT = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)  # on a busy machine


@pytest.mark.browser
def test_launcher_prints_a_page(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main = load_main("show_observation")
    settings = config.to_config_dict(config.RunConfig(browser=PATIENT))
    for form, told in (("compact", "button Go [1]"), ("webarena_lite", '<button id="1" ')):
        with flagsaver.flagsaver(
            url=site.page("<button>Go</button>"), format=form, config=settings
        ):
            main(["observe.py"])
        assert told in capsys.readouterr().out


@pytest.mark.browser
def test_launcher_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    main = load_main("show_observation")
    settings = config.to_config_dict(config.RunConfig(browser=PATIENT))
    for url, words in (
        ("ftp://x/", "is no http address"),
        ("http://127.0.0.1:1x/", "is no http address"),
        ("http://127.0.0.1:1/", "the browser failed: "),
    ):
        with flagsaver.flagsaver(url=url, config=settings), pytest.raises(SystemExit, match=words):
            main(["observe.py"])
    with flagsaver.flagsaver(config=settings), pytest.raises(app.UsageError, match="extra"):
        main(["observe.py", "extra"])
    monkeypatch.setenv("WEBAGENT_CHROMIUM", "/no/chromium")
    with (
        flagsaver.flagsaver(url="http://127.0.0.1:1/", config=settings),
        pytest.raises(SystemExit, match="is not a program; fix it with"),
    ):
        main(["observe.py"])
