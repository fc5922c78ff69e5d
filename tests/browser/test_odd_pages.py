"""Odd and hostile pages, each with what the agent sees of it and what its actions do.

A file of odd_pages/ is the body of a page, and in a comment behind it the transcript: what is
seen at first, then each action with what is seen after it (and what the agent is told of errors).
SITE stands for the host and port of the site.

    python -m tests.browser.test_odd_pages NAME ...    # plays pages anew and rewrites transcripts
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import IN_BOTH_BROWSERS, Site
from webagent_jax.agent import actions
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, Observation

FOLDER = Path(__file__).parent / "odd_pages"
_MARK = "\n<!-- transcript\n"
_ACTION = "> "
_SITE = "SITE"
_LONGEST = 160  # characters of a line; longer ones are told by their length


def read(name: str) -> tuple[str, str]:
    """(body, transcript)"""
    body, transcript = (FOLDER / f"{name}.html").read_text().split(_MARK)
    return body, transcript.removesuffix("-->\n")


def play(session: Session, site: Site, body: str, transcript: str) -> str:
    """The transcript as the browser has it, for the actions of the given one."""
    site.page("<p>second page</p>", "/second")
    site.page("<script>close()</script>", "/closing")
    session.goto(site.page(body))
    told = [_told(session.observe())]
    for line in transcript.splitlines():
        if line.startswith(_ACTION):
            action = actions.parse(line.removeprefix(_ACTION).replace(_SITE, site.origin))
            assert isinstance(action, Action), line
            told += [line, _told(session.observe(session.act(action)))]
    return "".join(f"{part}\n" for part in told if part).replace(site.origin, _SITE)


def _told(seen: Observation) -> str:
    lines = seen.text.splitlines()
    if seen.error:
        lines.append(f"Error: {seen.error}")
    return "\n".join(
        line if len(line) <= _LONGEST else f"{line[:40]}... ({len(line)} characters)"
        for line in lines
    )


@pytest.mark.browser
@IN_BOTH_BROWSERS
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.html")))
def test_odd_page(name: str, session: Session, site: Any) -> None:
    body, transcript = read(name)
    assert play(session, site, body, transcript) == transcript


def main(names: list[str]) -> None:
    with BrowserPool(BrowserConfig(viewport_width=800, viewport_height=600)) as pool:
        for name in names or sorted(path.stem for path in FOLDER.glob("*.html")):
            body, transcript = read(name)
            site = Site()
            with pool.session(origins=[site.origin]) as session:
                transcript = play(session, site, body, transcript)
            site.close()
            (FOLDER / f"{name}.html").write_text(f"{body}{_MARK}{transcript}-->\n")
            sys.stdout.write(f"--- {name}\n{transcript}")


if __name__ == "__main__":
    main(sys.argv[1:])
