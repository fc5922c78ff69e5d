"""Compare our `webarena_lite` observations with those of VisualAgentBench, page by page.

python third_party/visualagentbench/compare.py --checkout=VisualAgentBench [PAGE.html ...]

Loads the parser of VisualAgentBench from the checkout; README.md lists its commit and requirements.
Prints the tags that differ: "-" for the parser, "+" for ours. Exits with 1 if any differ.
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
    """Serve the files of a folder; yield "host:port" of the server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def baseline_observations(checkout: Path, urls: list[str]) -> list[str]:
    """Return the output of the VisualAgentBench parser for each page."""
    sys.path.insert(0, str(checkout / "VAB-WebArena-Lite" / "new"))
    from html_tools.fetch import get_parsed_html

    width, height = VIEWPORT
    texts = []
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as scratch:
        browser = driver.chromium.launch(
            executable_path=chromium.find_executable(), args=list(chromium.LAUNCH_ARGS)
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        for url in urls:
            page.goto(url)
            # The parser prints, and writes screenshots to the working directory.
            with contextlib.chdir(scratch), contextlib.redirect_stdout(io.StringIO()):
                texts.append(get_parsed_html(page)["html"])
        browser.close()
    return texts


def our_observations(origin: str, urls: list[str]) -> list[str]:
    """Return our observation of each page."""
    config = BrowserConfig(observation_format="webarena_lite", max_observation_chars=10**6)
    texts = []
    with BrowserPool(config) as pool:
        for url in urls:
            with pool.session(origins=[origin], viewport=VIEWPORT) as session:
                session.goto(url)
                texts.append(session.observe().text)
    return texts


def tags(text: str) -> list[str]:
    """Split into tags with their text; ids become their order, as first ids differ (0 and 1)."""
    order = itertools.count()
    text = re.sub(r'(<[\w-]+) id="\d+"', lambda match: f'{match[1]} id="{next(order)}"', text)
    return re.split(r" (?=</?[a-z])", text)


def differences(left: list[str], right: list[str]) -> list[str]:
    """Return the lines of a diff without context and headers."""
    lines = difflib.unified_diff(left, right, lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main() -> int:
    """Print the differences of each page; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True, help="checkout of VisualAgentBench")
    parser.add_argument(
        "pages",
        type=Path,
        nargs="*",
        help="HTML files of one folder; by default tests/browser/pages",
    )
    flags = parser.parse_args()
    pages = flags.pages or sorted(PAGES.glob("*.html"))
    folder = pages[0].resolve().parent
    num_different = 0
    with served(folder) as origin:
        urls = [f"http://{origin}/{page.name}" for page in pages]
        baseline = baseline_observations(flags.checkout.resolve(), urls)
        texts = zip(pages, baseline, our_observations(origin, urls), strict=True)
    for page, left, right in texts:
        lines = differences(tags(left), tags(right))
        num_different += bool(lines)
        labels = [len(re.findall(r'<[\w-]+ id="', text)) for text in (left, right)]
        print(f"{page.name}: {len(left)} characters, {labels[0]} and {labels[1]} ids, ", end="")
        print("the same" if not lines else "different", *lines, sep="\n  ")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
