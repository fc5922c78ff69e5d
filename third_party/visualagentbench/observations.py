"""Milliseconds of the VisualAgentBench parser: JSON on standard input, JSON on standard output."""

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
    """Measure the parser on each page and print the times."""
    request = json.load(sys.stdin)
    sys.path.insert(0, str(Path(request["checkout"]) / "VAB-WebArena-Lite" / "new"))
    from html_tools.fetch import get_parsed_html

    times_by_page = {}
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as scratch:
        browser = driver.chromium.launch(executable_path=request["executable"])
        for name, url in request["urls"].items():
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            page.goto(url)
            times = []
            for _ in range(request["repeats"]):
                start = time.perf_counter()
                # The parser prints, and writes screenshots to the working directory.
                with contextlib.chdir(scratch), contextlib.redirect_stdout(io.StringIO()):
                    get_parsed_html(page)
                times.append(1000 * (time.perf_counter() - start))
            page.close()
            times_by_page[name] = times
        browser.close()
    print(json.dumps(times_by_page))


if __name__ == "__main__":
    main()
