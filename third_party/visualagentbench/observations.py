"""Milliseconds of VisualAgentBench's parser: JSON on standard input, JSON on standard output."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright


def main():
    asked = json.load(sys.stdin)
    sys.path.insert(0, str(Path(asked["checkout"]) / "VAB-WebArena-Lite" / "new"))
    from html_tools.fetch import get_parsed_html

    found = {}
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as scratch:
        browser = driver.chromium.launch(executable_path=asked["executable"])
        for name, url in asked["urls"].items():
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            page.goto(url)
            times = []
            for _ in range(asked["repeats"]):
                begun = time.perf_counter()
                # It prints, and leaves pictures in the working directory.
                with contextlib.chdir(scratch), contextlib.redirect_stdout(io.StringIO()):
                    get_parsed_html(page)
                times.append(1000 * (time.perf_counter() - begun))
            page.close()
            found[name] = times
        browser.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
