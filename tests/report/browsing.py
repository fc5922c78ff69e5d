"""Helpers that open a report in Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

_CHROMIUM = (
    os.environ.get("WEBAGENT_CHROMIUM")
    or shutil.which("chromium-headless-shell")
    or shutil.which("chromium")
)  # None: the Chromium of Playwright


@contextmanager
def launch_chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def wait_for_turns(page: Page) -> None:
    """Wait until the turns of an open episode have loaded; arrow keys have no effect before."""
    expect(page.locator("#episode [aria-busy]")).to_have_count(0, timeout=20_000)


@contextmanager
def open_report(
    browser: Browser, report: Path, fragment: str = "", size: ViewportSize = DESKTOP
) -> Iterator[Page]:
    """Open the report from disk at `fragment` and wait until its list or episode is shown.

    Console messages and page errors fail the test.
    """
    page = browser.new_page(viewport=size)
    page.set_default_timeout(20_000)
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(report.as_uri() + fragment)
    page.wait_for_function("document.documentElement.dataset.ready")
    wait_for_turns(page)
    yield page
    page.close()
    assert messages == []
