"""The report in a live Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from webagent_jax.report import html

CHROMIUM = (
    os.environ.get("WEBAGENT_CHROMIUM")
    or shutil.which("chromium-headless-shell")
    or shutil.which("chromium")
)  # None leaves it to playwright

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(workdir: Path) -> Iterator[Page]:
    path = html.write_report(workdir)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(10_000)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        yield page
        browser.close()
    assert complaints == []


def test_opens_offline_without_running_what_the_web_said(page: Page) -> None:
    expect(page).to_have_title("Run report · webagent_jax")
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")


def test_fits_a_phone(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_keyboard_steps_one_player_or_all(page: Page) -> None:
    counters = page.locator(".case:not([hidden]) .counter")
    expect(counters).to_have_text(["Step 1 of 3", "Step 1 of 3"])
    page.keyboard.press("ArrowRight")
    expect(counters).to_have_text(["Step 2 of 3", "Step 2 of 3"])
    page.locator(".case:not([hidden]) .player").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(counters).to_have_text(["How it ended", "Step 2 of 3"])
    page.keyboard.press("ArrowLeft")
    expect(counters).to_have_text(["Step 3 of 3", "Step 2 of 3"])
    expect(page.locator(".case:not([hidden]) .steps > li:not([hidden])")).to_have_count(2)


def test_buttons_step_and_chips_change_the_task(page: Page) -> None:
    page.locator(".chips a").nth(1).click()
    expect(page.locator(".case:not([hidden])")).to_have_id("case-2")
    expect(page.locator(".chips [aria-current]")).to_have_count(1)
    page.get_by_role("button", name="Next step").first.click()
    expect(page.locator("#case-2 .counter").first).to_have_text("Step 2 of 3")
    page.keyboard.press("]")
    expect(page.locator(".case:not([hidden])")).to_have_id("case-3")


def test_mark_lies_on_the_acted_element(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#case-1")
    page.reload()
    page.evaluate("Promise.all([...document.images].map(image => image.decode()))")
    # In one call: the page may scroll to its fragment between two.
    window, mark, image = page.evaluate(
        """[".window", ".mark", "img"].map(
            name => document.querySelector(`#case-1 ${name}`).getBoundingClientRect().toJSON())"""
    )
    scale = image["width"] / 640  # screen pixels for a pixel of the picture
    assert mark["x"] - image["x"] == pytest.approx(20 * scale, abs=1)
    assert mark["y"] - image["y"] == pytest.approx(60 * scale, abs=1)
    assert mark["width"] == pytest.approx(210 * scale, abs=1)
    assert mark["right"] < window["right"]
