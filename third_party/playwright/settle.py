"""Waits of Playwright for changes after a click: JSON in, JSON out.

Prints for each kind of wait a list with [whether the change is complete, ms] of each page.
"""

from __future__ import annotations

import json
import sys
import time

from playwright.sync_api import sync_playwright

WAITS = {
    "networkidle": lambda page: page.wait_for_load_state("networkidle"),
    "500 ms": lambda page: page.wait_for_timeout(500),
}


def main():
    """Measure each kind of wait and print the outcomes."""
    request = json.load(sys.stdin)
    outcomes = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=request["executable"])
        for name, wait in WAITS.items():
            outcomes[name] = []
            for url in request["urls"]:
                context = browser.new_context()
                page = context.new_page()
                page.goto(url)
                page.wait_for_timeout(1000 * request["thought"])
                start = time.perf_counter()
                page.click("#go")
                wait(page)
                ms = 1000 * (time.perf_counter() - start)
                outcomes[name].append((page.evaluate("!!document.getElementById('done')"), ms))
                context.close()
        browser.close()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
