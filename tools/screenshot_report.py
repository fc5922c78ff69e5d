"""Take the screenshots of docs/evaluation.md from the report of a quickstart.

python tools/screenshot_report.py runs/quickstart/report.html
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from webagent_jax.browser import chromium

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LEARNED = "log=grpo&change=learned"  # episodes that M-GRPO solves and BC does not
PHONE = (390, 844)  # CSS pixels
GAP = 20  # pixels between the screenshots of the phone


def main(argv: Sequence[str] | None = None) -> None:
    """Write docs/images/report-*.jpg."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="report.html of a quickstart")
    address = parser.parse_args(argv).report.resolve().as_uri()
    executable = str(chromium.find_executable())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = _open(browser, address, (1280, 1500))
        _save("summary", _screenshot(page))
        page = _open(browser, f"{address}#{LEARNED}", (1280, 820))
        # The comparison that the summary offers: an episode that BC fails.
        compare = page.get_by_role("link", name="Compare").first.get_attribute("href")
        _save("list", _screenshot(page))
        _save("compare", _screenshot(_open(browser, f"{address}{compare}", (1280, 1180))))
        episode, _, _ = (compare or "").partition("&")
        _save(
            "dark",
            _screenshot(_open(browser, f"{address}{episode}&step=2", (1280, 900), dark=True)),
        )
        phones = [
            _screenshot(_open(browser, address, PHONE)),
            _screenshot(_open(browser, f"{address}#{LEARNED}", PHONE)),
            _screenshot(_open(browser, f"{address}{episode}&step=2", PHONE, dark=True)),
        ]
        _save("phone", _join(phones))
        browser.close()


def _open(browser: Browser, address: str, size: tuple[int, int], *, dark: bool = False) -> Page:
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1_000)
    return page


def _screenshot(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _join(images: Sequence[Image.Image]) -> Image.Image:
    """Return the images side by side."""
    width, height = images[0].size
    joined = Image.new("RGB", ((width + GAP) * len(images) - GAP, height), (216, 210, 204))
    for number, image in enumerate(images):
        joined.paste(image, (number * (width + GAP), 0))
    return joined


def _save(name: str, image: Image.Image) -> None:
    image.save(IMAGES / f"report-{name}.jpg", quality=85, optimize=True)


if __name__ == "__main__":
    main()
