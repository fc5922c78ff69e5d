"""Pages that change after a click, with Playwright's usual two ways to wait: JSON in, JSON out.

The answer is, by way, [the change was there, ms] of each page.
"""

from __future__ import annotations

import json
import sys
import time

from playwright.sync_api import sync_playwright

WAYS = {
    "networkidle": lambda page: page.wait_for_load_state("networkidle"),
    "500 ms": lambda page: page.wait_for_timeout(500),
}


def main():
    asked = json.load(sys.stdin)
    found = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=asked["executable"])
        for way, wait in WAYS.items():
            found[way] = []
            for url in asked["urls"]:
                context = browser.new_context()
                page = context.new_page()
                page.goto(url)
                page.wait_for_timeout(1000 * asked["thought"])
                begun = time.perf_counter()
                page.click("#go")
                wait(page)
                ms = 1000 * (time.perf_counter() - begun)
                found[way].append((page.evaluate("!!document.getElementById('done')"), ms))
                context.close()
        browser.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
