"""Our `webarena_lite` observations beside VisualAgentBench's own, page by page.

python third_party/visualagentbench/compare.py --checkout=VisualAgentBench [PAGE.html ...]

Loads their parser from the checkout; README.md says which commit, and what it needs. Prints the tags
that differ, theirs with "-" and ours with "+". Exit status 1 when there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import http.server
import io
import itertools
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

from webagent_jax.browser import BrowserPool, chromium
from webagent_jax.config import BrowserConfig

PAGES = Path(__file__).parents[2] / "tests" / "browser" / "pages"
VIEWPORT = (1280, 720)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address under which the files of a folder are served."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def theirs(checkout: Path, urls: list[str]) -> list[str]:
    """What their parser makes of each page. It leaves pictures in the working directory."""
    sys.path.insert(0, str(checkout / "VAB-WebArena-Lite" / "new"))
    from html_tools.fetch import get_parsed_html

    width, height = VIEWPORT
    texts = []
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as scratch:
        browser = driver.chromium.launch(
            executable_path=chromium.find(), args=list(chromium.SWITCHES)
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        for url in urls:
            page.goto(url)
            with contextlib.chdir(scratch), contextlib.redirect_stdout(io.StringIO()):
                texts.append(get_parsed_html(page)["html"])
        browser.close()
    return texts


def ours(origin: str, urls: list[str]) -> list[str]:
    config = BrowserConfig(observation="webarena_lite", observation_chars=10**6)
    texts = []
    with BrowserPool(config) as pool:
        for url in urls:
            with pool.session(origins=[origin], viewport=VIEWPORT) as session:
                session.goto(url)
                texts.append(session.observe().text)
    return texts


def tags(text: str) -> list[str]:
    """One tag with its words an item; ids by order, for theirs begin at 0 and ours at 1."""
    order = itertools.count()
    ordered = re.sub(r'(<[\w-]+) id="\d+"', lambda found: f'{found[1]} id="{next(order)}"', text)
    return re.split(r" (?=</?[a-z])", ordered)


def differences(left: list[str], right: list[str]) -> list[str]:
    lines = difflib.unified_diff(left, right, lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True, help="of VisualAgentBench")
    parser.add_argument("pages", type=Path, nargs="*", help="HTML files; ours by default")
    flags = parser.parse_args()
    pages = flags.pages or sorted(PAGES.glob("*.html"))
    folder = pages[0].resolve().parent
    differing = 0
    with served(folder) as origin:
        urls = [f"http://{origin}/{page.name}" for page in pages]
        texts = zip(pages, theirs(flags.checkout.resolve(), urls), ours(origin, urls), strict=True)
    for page, left, right in texts:
        lines = differences(tags(left), tags(right))
        differing += bool(lines)
        labels = [len(re.findall(r'<[\w-]+ id="', text)) for text in (left, right)]
        print(f"{page.name}: {len(left)} characters, {labels[0]} and {labels[1]} ids, ", end="")
        print("the same" if not lines else "different", *lines, sep="\n  ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
