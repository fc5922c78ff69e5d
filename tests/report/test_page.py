"""Tests of the report page in Chromium, opened from disk."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.report.browsing import DESKTOP, PHONE, launch_chromium, open_report, wait_for_turns
from tests.report.conftest import INJECTION, make_episode, make_training_episodes
from webagent_jax import types
from webagent_jax.config import RunConfig
from webagent_jax.report import html
from webagent_jax.tracking import atomic_files, episode_log, episode_stats
from webagent_jax.tracking.metric_writers import JsonlWriter

pytestmark = pytest.mark.browser

CONTRAST_SCRIPT = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(workdir: Path) -> Path:
    return html.write_report(workdir)


@pytest.fixture(scope="module")
def tab(browser: Browser, report: Path) -> Iterator[Page]:
    with open_report(browser, report) as page:
        yield page


@pytest.fixture
def page(tab: Page) -> Page:
    """Return the page with the unfiltered episode list."""
    show(tab, "")
    return tab


def show(page: Page, fragment: str) -> None:
    page.evaluate("fragment => { location.hash = fragment || 'trajectories'; }", fragment)
    view = "#episode h2" if "episode=" in fragment else "#browser"
    expect(page.locator(view)).to_be_visible()
    wait_for_turns(page)


def read_fragment(page: Page) -> str:
    return str(page.evaluate("location.hash"))


# --- featured episode --------------------------------------------------------------------------


def test_featured_episode_plays_what_grpo_learned(browser: Browser, report: Path) -> None:
    with open_report(browser, report) as page:
        featured = page.locator("#featured")
        expect(featured.locator("img")).to_be_visible()
        expect(featured).to_contain_text("BC on the same task and seed")
        # The three turns play, and the end stays.
        expect(featured.locator(".act")).to_contain_text("Field 2", timeout=20_000)
        expect(featured.locator(".mark")).to_be_visible()
        expect(featured.locator(".act")).to_have_text("✓ success in 3 turns", timeout=20_000)
        featured.get_by_role("button", name="Play again").click()
        expect(featured.locator(".act")).to_contain_text("Field 1")
        featured.get_by_role("button", name="Turn 3").click()
        expect(featured.get_by_role("button", name="Play", exact=True)).to_be_visible()
        expect(featured.locator(".act")).to_contain_text("Login")
        featured.get_by_role("link", name="Compare").click()
        expect(page.locator(".pane h3")).to_have_text(["M-GRPO", "BC"])
        expect(page.locator(".pane .pill:not(.finding)")).to_have_text(["✓ success", "✕ failure"])


def test_featured_episode_waits_with_reduced_motion(browser: Browser, report: Path) -> None:
    page = browser.new_page(reduced_motion="reduce")
    page.goto(report.as_uri())
    featured = page.locator("#featured")
    expect(featured.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(featured.locator(".act")).to_contain_text("1 Type")
    page.close()


def test_featured_episode_escapes_web_content(page: Page) -> None:
    page.locator("#featured").get_by_role("button", name="Turn 1").click()
    lines = page.locator("#featured .observation li")
    expect(lines.nth(1)).to_have_text(INJECTION)
    assert page.evaluate("document.querySelectorAll('#featured .observation img').length") == 0


# --- episode list ---------------------------------------------------------------------------------


def test_episode_list_is_paginated(page: Page) -> None:
    expect(page.locator("#count")).to_contain_text("160 episodes")
    rows = page.locator("#episodes > li")
    expect(rows).to_have_count(60)
    page.locator("#more").click()
    page.locator("#more").click()
    expect(rows).to_have_count(160)
    expect(page.locator("#more")).to_be_hidden()


@pytest.mark.parametrize(
    ("fragment", "count"),
    [
        ("log=update-1", 8),
        ("log=training", 16),
        ("log=evaluation", 144),
        ("log=training&site=login-user", 8),
        ("log=base&task=miniwob/click-tab/3", 1),
        ("log=training&outcome=FAILURE", 4),
        ("log=training&reward=1", 12),
        ("log=training&reward=none", 0),
        ("log=training&from=4", 0),
        ("log=training&from=3&to=3", 16),
        ("log=training&q=LOGIN karrie", 16),
        ("log=training&q=nowhere", 0),
        ("log=training&finding=unparsable", 4),
        ("log=training&finding=loop", 0),
    ],
)
def test_url_fragment_sets_filters(page: Page, fragment: str, count: int) -> None:
    show(page, fragment)
    text = f"{count} episode" if count else "No episode"
    expect(page.locator("#count")).to_contain_text(text)
    expect(page.locator("#episodes > li")).to_have_count(min(count, 60))


def test_form_filters_update_list_and_url(page: Page) -> None:
    page.locator("[name=log]").select_option("update-2")
    expect(page.locator("#count")).to_contain_text("8 episodes, 75")
    page.locator("#outcomes button", has_text="failure").click()
    expect(page.locator("#count")).to_contain_text("2 episodes, 0")
    assert read_fragment(page) == "#log=update-2&outcome=FAILURE"
    page.get_by_role("searchbox").fill("click on button")
    expect(page.locator("#count")).to_contain_text("2 episodes")
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator("#count")).to_contain_text("160 episodes")
    assert read_fragment(page) == "#trajectories"


def test_learned_link_lists_tasks_and_compares_stages(page: Page, workdir: Path) -> None:
    page.locator(".changes a", has_text="learned").click()
    rewards = {
        stage: {
            e.task.id: e.reward
            for e in episode_log.load_episodes(workdir / f"eval/{stage}/episodes/episodes.jsonl")
        }
        for stage in ("bc", "grpo")
    }
    learned = [t for t, r in rewards["grpo"].items() if r == 1 and rewards["bc"][t] == 0]
    expect(page.locator("#episodes > li")).to_have_count(len(learned))
    page.locator("#episodes a").first.click()
    expect(page.locator(".pane h3")).to_have_text(["M-GRPO", "BC"])
    expect(page.locator(".pane .pill:not(.finding)")).to_have_text(["✓ success", "✕ failure"])


def test_audit_links_list_episodes_with_finding(page: Page) -> None:
    link = page.locator("#audit tr", has_text="unparsable").get_by_role("link").nth(2)
    expect(link).to_have_text("4")
    link.click()
    expect(page.locator("#episodes > li")).to_have_count(4)
    assert read_fragment(page) == "#log=training&finding=unparsable"
    page.locator("#episodes a").first.click()
    expect(page.locator(".pane .pill")).to_have_text(["✕ failure", "unparsable"])


# --- episode view ---------------------------------------------------------------------------------


def test_keys_navigate_turns_and_episodes(page: Page) -> None:
    show(page, "log=update-1&episode=update-1/2")
    counter = page.locator(".counter")
    expect(counter).to_have_text("Turn 1 of 3")
    page.keyboard.press("ArrowRight")
    expect(counter).to_have_text("Turn 2 of 3")
    assert read_fragment(page) == "#log=update-1&episode=update-1/2&turn=2"
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(counter).to_have_text("End of episode")
    page.keyboard.press("ArrowLeft")
    expect(counter).to_have_text("Turn 3 of 3")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".toolbar .note")).to_have_text("4 of 8")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".toolbar .note")).to_have_text("2 of 8")
    assert read_fragment(page) == "#log=update-1&episode=update-1/1"
    page.keyboard.press("Escape")
    expect(page.locator("#count")).to_contain_text("8 episodes")
    assert page.evaluate("document.activeElement.dataset.id") == "update-1/1"


def test_list_shows_row_of_the_episode_after_a_full_page(page: Page) -> None:
    show(page, "episode=bc/12")  # 48 episodes of the base policy come first
    page.keyboard.press("Escape")
    expect(page.locator("#episodes > li")).to_have_count(120)
    assert page.evaluate("document.activeElement.dataset.id") == "bc/12"


def test_skip_link_keeps_the_episode(page: Page) -> None:
    show(page, "log=update-1&episode=update-1/2&turn=2")
    # The listener of the page precedes this one.
    follow = """selector => new Promise((done) => {
        addEventListener("hashchange", () => done(location.hash), { once: true });
        document.querySelector(selector).click();
    })"""
    assert page.evaluate(follow, ".skip") == "#main"
    expect(page.locator("#overview")).to_be_hidden()
    expect(page.locator(".counter")).to_have_text("Turn 2 of 3")
    page.keyboard.press("Escape")
    expect(page.locator("#count")).to_contain_text("8 episodes")
    show(page, "episode=update-1/2")
    assert page.evaluate(follow, "nav a[href='#training']") == "#training"
    expect(page.locator("#overview")).to_be_visible()


def test_help_key_is_ignored_in_search_box(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("?/x")
    expect(page.get_by_role("searchbox")).to_have_value("?/x")
    expect(page.locator("#help")).to_be_hidden()


def test_search_key_applies_right_after_help_closes(page: Page) -> None:
    """A key before the next frame, when the hidden button of the dialog still has the focus."""
    page.evaluate(
        """() => {
            const help = document.getElementById("help");
            help.showModal();
            help.close();
            const options = { key: "/", bubbles: true, cancelable: true };
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", options));
        }"""
    )
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_link_followed_after_typing_keeps_its_address(page: Page) -> None:
    page.get_by_role("searchbox").fill("login")
    show(page, "episode=update-1/1")
    page.wait_for_timeout(300)
    assert read_fragment(page) == "#episode=update-1/1"


def test_attempts_are_compared_in_two_panes(page: Page) -> None:
    show(page, "episode=update-1/1")
    chips = page.locator(".compare a")
    expect(chips).to_have_text(["✕attempt 1 3 turns", *(f"✓attempt {n} 3 turns" for n in (3, 4))])
    chips.first.click()
    expect(page.locator(".pane h3")).to_have_text(["Update 1 attempt 2", "Update 1 attempt 1"])
    counters = page.locator(".counter")
    expect(counters).to_have_text(["Turn 1 of 3", "Turn 1 of 3"])
    page.keyboard.press("ArrowRight")
    expect(counters).to_have_text(["Turn 2 of 3", "Turn 2 of 3"])
    page.locator(".pane").nth(1).get_by_role("button", name="Next turn").click()
    page.keyboard.press("ArrowRight")
    expect(counters).to_have_text(["Turn 2 of 3", "End of episode"])
    assert read_fragment(page) == "#episode=update-1/1&turn=2&with=update-1/0&turn2=4"
    page.keyboard.press("ArrowDown")
    expect(page.locator(".pane")).to_have_count(2)


def test_retried_fault_is_no_attempt(browser: Browser, tmp_path: Path) -> None:
    """An attempt ran again after a fault, another one has a fault only."""
    failure = make_episode("miniwob/click-tab/1", success=False, with_screenshots=False, attempt=0)
    fault = dataclasses.replace(
        failure, turns=(), reward=None, outcome=types.Outcome.INFRA, infra_error="gone"
    )
    episodes = [
        fault,
        dataclasses.replace(fault, attempt=1),
        failure,
        dataclasses.replace(failure, attempt=2),
    ]
    episode_log.append_episodes(tmp_path / "episodes" / "episodes.jsonl", episodes)
    report = episode_stats.summarize([failure, *episodes[1:2], episodes[3]], 1.0)
    atomic_files.write_json(tmp_path / "eval.json", episode_log.eval_json(report, RunConfig(), ""))
    with open_report(browser, html.write_report(tmp_path)) as page:
        expect(page.locator("#count")).to_have_text("3 episodes, 0 % solved")
        expect(page.locator("#episodes .where")).to_have_count(3)
        # The ids remain the line numbers of the log.
        links = page.locator("#episodes a")
        ids = [links.nth(i).get_attribute("data-id") for i in range(3)]
        assert [str(i).rpartition("/")[2] for i in ids] == ["1", "2", "3"]
        expect(page.locator("#outcomes .facet:visible")).to_have_text(["✕ failure 2", "! infra 1"])
        links.nth(2).click()
        chips = page.locator(".compare a")
        expect(chips).to_have_count(2)
        expect(chips.nth(0)).to_contain_text("attempt 2")
        expect(chips.nth(1)).to_contain_text("attempt 1")
        # A link to the superseded episode remains valid.
        show(page, f"episode={str(ids[0]).rpartition('/')[0]}/0")
        expect(page.locator(".pane h3")).to_contain_text("attempt 1")


def test_group_in_two_logs_is_one_group(browser: Browser, tmp_path: Path) -> None:
    """A run that continues with another number of processes finishes a group in another log."""
    episodes = make_training_episodes(1)[:4]
    fault = dataclasses.replace(
        episodes[1], turns=(), reward=None, outcome=types.Outcome.INFRA, infra_error="gone"
    )
    folder = tmp_path / "grpo" / "episodes"
    episode_log.append_episodes(folder / "update-00001.jsonl", [episodes[0], fault])
    episode_log.append_episodes(folder / "update-00001-process-1.jsonl", episodes[1:])
    JsonlWriter(tmp_path / "grpo" / "metrics.jsonl").write(1, {"reward": 0.75})
    with open_report(browser, html.write_report(tmp_path)) as page:
        expect(page.locator("#count")).to_have_text("4 episodes, 75 % solved")
        show(page, "episode=update-1/0")
        expect(page.locator(".compare a")).to_have_text(
            [f"✓attempt {n} 3 turns" for n in (2, 3, 4)]
        )


def test_link_opens_turn(browser: Browser, report: Path) -> None:
    fragment = "#log=update-1&episode=update-1/2&turn=2&with=update-1/0&turn2=3"
    with open_report(browser, report, fragment) as page:
        expect(page.locator(".counter")).to_have_text(["Turn 2 of 3", "Turn 3 of 3"])
        expect(page.locator(".toolbar .note")).to_have_text("3 of 8")
        page.go_back()
    with open_report(browser, report, "#episode=update-9/1") as page:
        expect(page.locator("#episode")).to_contain_text("There is no episode update-9/1")


def test_turn_shows_all_logged_fields(page: Page) -> None:
    show(page, "episode=update-1/0&turn=2")
    episode_view = page.locator("#episode")
    expect(episode_view.locator(".part.invalid")).to_contain_text(
        "Not executed: the reply holds no action"
    )
    expect(episode_view.locator(".bars i")).to_have_count(13)
    expect(episode_view.locator(".probabilities .readout")).to_contain_text(
        "lowest probability: token 1, 14 %"
    )
    expect(episode_view.locator(".time")).to_contain_text("model 0.10 s")
    expect(episode_view.locator(".scale")).to_contain_text("policy version 0")
    episode_view.get_by_text("Exact response, 13 tokens").click()
    expect(episode_view.locator("pre")).to_have_text("I would rather not.")
    show(page, "episode=update-1/1&turn=1")
    expect(episode_view.locator(".thought")).to_contain_text("Field 1 is next.")
    expect(episode_view.locator(".observation mark")).to_have_text("target: textbox Field 1 [1]")
    expect(episode_view.locator(".added")).to_have_text("+ textbox Field 1 [1] = karrie")


def test_mark_covers_target_element(page: Page) -> None:
    show(page, "episode=grpo/0&turn=1")
    expect(page.locator("#episode img")).to_have_count(1)
    page.locator("#episode img").evaluate("image => image.decode()")
    window, mark, image = page.evaluate(
        """[".window", ".mark", "img"].map(
            name => document.querySelector(`#episode ${name}`).getBoundingClientRect().toJSON())"""
    )
    scale = image["width"] / 640  # screen pixels per screenshot pixel
    assert mark["x"] - image["x"] == pytest.approx(20 * scale, abs=1)
    assert mark["y"] - image["y"] == pytest.approx(60 * scale, abs=1)
    assert mark["width"] == pytest.approx(210 * scale, abs=1)
    assert mark["right"] < window["right"]


def test_page_escapes_web_content(page: Page) -> None:
    show(page, "episode=update-1/1")
    expect(page.locator("#episode .observation li").nth(1)).to_have_text(INJECTION)
    assert page.title() != "owned"
    assert (
        page.evaluate("document.querySelectorAll('.observation img, .observation script').length")
        == 0
    )


# --- environments ---------------------------------------------------------------------------------


def test_page_fits_phone_width(browser: Browser, report: Path) -> None:
    for fragment in ("", "#episode=grpo/0", "#episode=grpo/0&with=bc/0"):
        with open_report(browser, report, fragment, PHONE) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_page_without_report_dir_names_missing_directory(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    shutil.copy(report, tmp_path / "report.html")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.locator("h1")).to_contain_text("Success went from")
    expect(page.locator("#training svg").first).to_be_visible()
    expect(page.locator("#missing")).to_contain_text("The directory report/")
    expect(page.locator("#browser")).to_be_hidden()
    page.close()


def test_missing_chunk_file_is_named(browser: Browser, report: Path, tmp_path: Path) -> None:
    shutil.copy(report, tmp_path / "report.html")
    (tmp_path / "report").mkdir()
    shutil.copy(report.parent / "report" / "index.js", tmp_path / "report")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri() + "#episode=grpo/0")
    expect(page.locator("#episode .empty")).to_contain_text("report/grpo/0.js is missing")
    page.close()


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_names_of_stages_fit_one_line(browser: Browser, report: Path, size: ViewportSize) -> None:
    with open_report(browser, report, "", size) as page:
        names = page.locator(".path .stage, thead th.number").filter(has_text="M-GRPO")
        assert names.count() > 1
        num_lines = """(element) => {
          const range = document.createRange();
          const text = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
          while (text.nextNode()) {
            const node = text.currentNode;
            if (node.data.includes("M-GRPO")) range.selectNode(node);
          }
          return range.getClientRects().length;
        }"""
        assert [name.evaluate(num_lines) for name in names.all()] == [1] * names.count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_sufficient_contrast(
    browser: Browser, report: Path, scheme: Literal["light", "dark"]
) -> None:
    """WCAG AA: contrast of at least 4.5 to 1 for all visible text."""
    with open_report(browser, report, "#episode=update-1/0&with=update-1/1&turn=2") as page:
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST_SCRIPT) == []
        show(page, "episode=grpo/0&turn=1")
        # The policy of the fixture has no tokenizer, so its tokens have no texts.
        page.locator("#episode .probabilities").first.evaluate("""(element) => {
          for (const shade of [0, 1, 2, 3, 4]) {
            const token = `<span class="t p${shade}">a<small>end</small></span>`;
            element.innerHTML += `<p class="tokens">${token}</p>`;
          }
        }""")
        expect(page.locator(".t.p4 small").first).to_be_visible()
        assert page.evaluate(CONTRAST_SCRIPT) == []
        show(page, "log=training")
        assert page.evaluate(CONTRAST_SCRIPT) == []
