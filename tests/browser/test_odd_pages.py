"""Tests of odd and hostile pages: observations and results of actions match transcripts.

A file of odd_pages/ contains the body of a page and, in a comment after it, the transcript: the
first observation, then each action with the next observation (including error messages). SITE
represents the host and port of the site.

    python -m tests.browser.test_odd_pages NAME ...    # runs pages again and rewrites transcripts
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import BOTH_BROWSERS, Site
from webagent_jax.agent import actions
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, Observation

FOLDER = Path(__file__).parent / "odd_pages"
_TRANSCRIPT_START = "\n<!-- transcript\n"
_ACTION_PREFIX = "> "
_SITE = "SITE"
_MAX_LINE_CHARS = 160  # longer lines are abbreviated with their length


def read_page(name: str) -> tuple[str, str]:
    """Return (body, transcript)."""
    body, transcript = (FOLDER / f"{name}.html").read_text().split(_TRANSCRIPT_START)
    return body, transcript.removesuffix("-->\n")


def run_transcript(session: Session, site: Site, body: str, transcript: str) -> str:
    """Return the transcript that the browser produces for the actions of the given one."""
    site.add_page("<p>second page</p>", "/second")
    site.add_page("<script>close()</script>", "/closing")
    session.goto(site.add_page(body))
    parts = [_format_observation(session.observe())]
    for line in transcript.splitlines():
        if line.startswith(_ACTION_PREFIX):
            action = actions.parse(line.removeprefix(_ACTION_PREFIX).replace(_SITE, site.origin))
            assert isinstance(action, Action), line
            parts += [line, _format_observation(session.observe(session.act(action)))]
    return "".join(f"{part}\n" for part in parts if part).replace(site.origin, _SITE)


def _format_observation(observation: Observation) -> str:
    lines = observation.text.splitlines()
    if observation.error:
        lines.append(f"Error: {observation.error}")
    return "\n".join(
        line if len(line) <= _MAX_LINE_CHARS else f"{line[:40]}... ({len(line)} characters)"
        for line in lines
    )


@pytest.mark.browser
@BOTH_BROWSERS
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.html")))
def test_odd_page_matches_transcript(name: str, session: Session, site: Any) -> None:
    body, transcript = read_page(name)
    assert run_transcript(session, site, body, transcript) == transcript


def main(names: list[str]) -> None:
    with BrowserPool(BrowserConfig(viewport_width=800, viewport_height=600)) as pool:
        for name in names or sorted(path.stem for path in FOLDER.glob("*.html")):
            body, transcript = read_page(name)
            site = Site()
            with pool.session(origins=[site.origin]) as session:
                transcript = run_transcript(session, site, body, transcript)
            site.close()
            (FOLDER / f"{name}.html").write_text(f"{body}{_TRANSCRIPT_START}{transcript}-->\n")
            sys.stdout.write(f"--- {name}\n{transcript}")


if __name__ == "__main__":
    main(sys.argv[1:])
