"""Tests of the report of a live evaluation with 300 episodes, and of 1,200 episodes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from configs import quickstart
from tests.report.browsing import launch_chromium, open_report
from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.evaluate import evaluate
from webagent_jax.report import html
from webagent_jax.tracking import episode_log
from webagent_jax.types import Episode

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(3600)]

MAX_OPEN_SECONDS = 2.0  # upper bound for 1,000 episodes on an idle machine
LOAD_FACTOR = 3.0  # allowance for other work on the machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def eval_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluate 25 episodes of each of 12 pages with the quickstart config."""
    cfg = quickstart.get_config()
    eval_config = dataclasses.replace(cfg.eval, seeds_per_task=25, screenshots_per_task=2)
    path = tmp_path_factory.mktemp("real") / "run"
    evaluate(dataclasses.replace(cfg, eval=eval_config), path)
    return path


@pytest.fixture(scope="module")
def episodes(eval_dir: Path) -> tuple[Episode, ...]:
    return episode_log.load_episodes(eval_dir / "episodes" / "episodes.jsonl")


def test_filters_count_all_episodes(
    browser: Browser, eval_dir: Path, episodes: tuple[Episode, ...]
) -> None:
    with open_report(browser, eval_dir / "report.html") as page:
        expect(page.locator("#count")).to_contain_text("300 episodes")
        for site in {episode.task.sites[0] for episode in episodes}:
            page.locator("[name=site]").select_option(site)
            expect(page.locator("#count")).to_contain_text("25 episodes")
        page.get_by_role("button", name="Clear filters").click()
        for outcome in {episode.outcome for episode in episodes}:
            count = sum(episode.outcome is outcome for episode in episodes)
            page.locator(f"#outcomes [value={outcome}]").click()
            expect(page.locator("#count")).to_contain_text(f"{count} episode")
            page.locator(f"#outcomes [value={outcome}]").click()


def test_arrow_keys_visit_all_episodes(
    browser: Browser, eval_dir: Path, episodes: tuple[Episode, ...]
) -> None:
    with open_report(browser, eval_dir / "report.html", "#episode=eval/0") as page:
        counter = page.locator(".counter")
        for index, episode in enumerate(episodes):
            turns = len(episode.turns)
            expect(page.locator(".toolbar .note")).to_have_text(f"{index + 1} of 300")
            expect(page.locator("#episode h2")).to_have_text(episode.intent)
            expect(counter).to_have_text(f"Turn 1 of {turns}")
            for _ in range(turns):
                page.keyboard.press("ArrowRight")
            expect(counter).to_have_text("End of episode")
            page.keyboard.press("ArrowDown")


def test_turn_link_shows_logged_turn(
    browser: Browser, eval_dir: Path, episodes: tuple[Episode, ...]
) -> None:
    tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
    index, episode = next(
        (i, e) for i, e in enumerate(episodes) if len(e.turns) > 2 and e.turns[2].screenshot
    )
    turn = episode.turns[2]
    with open_report(browser, eval_dir / "report.html", f"#episode=eval/{index}&turn=3") as page:
        expect(page.locator(".counter")).to_have_text(f"Turn 3 of {len(episode.turns)}")
        page.get_by_text("Exact prompt").click()
        assert page.locator("pre").text_content() == tokenizer.decode(turn.prompt_ids)
        lines = [
            line.removeprefix("target: ")
            for line in page.locator("#episode .observation li").all_text_contents()
        ]
        assert lines == turn.observation.text.splitlines()
        response = page.evaluate(
            "[...document.querySelectorAll('.t')].map(t => t.textContent).join('')"
        )
        assert response.removesuffix("end") == turn.response_text
        assert page.evaluate("document.querySelector('#episode img').decode().then(() => true)")


def test_report_of_1200_episodes_opens_within_limit(
    browser: Browser, episodes: tuple[Episode, ...], tmp_path: Path
) -> None:
    for attempt in range(4):
        copies = (dataclasses.replace(episode, attempt=attempt) for episode in episodes)
        episode_log.append_episodes(tmp_path / "episodes" / "episodes.jsonl", copies)
    report = html.write_report(tmp_path)
    start = time.monotonic()
    with open_report(browser, report) as page:
        expect(page.locator("#episodes > li").first).to_be_visible()
        seconds = time.monotonic() - start
        expect(page.locator("#count")).to_contain_text("1,200 episodes")
    assert seconds < MAX_OPEN_SECONDS * LOAD_FACTOR
