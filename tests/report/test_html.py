from __future__ import annotations

import dataclasses
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from absl import app
from absl.testing import flagsaver

from tests.launchers import main_of
from webagent_jax import types
from webagent_jax.report import (
    files,
    html,
    metrics,
    plots,
    store,
    trajectories,
)
from webagent_jax.report import workdir as workdirs


@pytest.fixture
def copy(workdir: Path, tmp_path: Path) -> Path:
    shutil.copytree(workdir, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def page(workdir: Path) -> str:
    return html.write_report(workdir).read_text("utf-8")


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_whole_run(workdir: Path, page: str) -> None:
    assert (workdir / "report.html").stat().st_size < 10_000_000
    assert "Success went from" in page and "GRPO against BC" in page
    assert 'id="training"' in page and 'id="tasks"' in page and 'id="trajectories"' in page
    assert page.count('class="player"') >= 6
    assert page.count("acted on: ") >= 6
    tags = Tags(page).found
    assert all(
        str(attrs["src"]).startswith("data:image/jpeg") for tag, attrs in tags if tag == "img"
    )
    assert all(attrs.get("alt") for tag, attrs in tags if tag == "img")
    assert not any(tag == "link" or "onerror" in attrs for tag, attrs in tags)
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_text_from_the_web_stays_text(page: str) -> None:
    assert "&lt;script&gt;document.title = &#39;owned&#39;" in page
    assert "<script>document.title" not in page
    assert sum(tag == "script" for tag, _ in Tags(page).found) == 1


@pytest.mark.parametrize("missing", ["summary.json", "grpo/metrics.jsonl", "eval"])
def test_what_is_missing_is_left_out(copy: Path, missing: str) -> None:
    shutil.rmtree(copy / "bc")  # its curves take longest to draw
    (copy / missing).rename(copy / "away")
    page = html.write_report(copy).read_text("utf-8")
    assert ("GRPO against BC" in page) is (missing != "summary.json")
    assert ('id="training"' in page) is (missing != "grpo/metrics.jsonl")
    assert ('class="player"' in page) is (missing != "eval")


def test_empty_workdir_is_a_run_under_way(tmp_path: Path) -> None:
    assert "This run is under way" in html.write_report(tmp_path).read_text("utf-8")


def test_run_with_base_and_bc_so_far(copy: Path) -> None:
    summary = files.read_json(copy / "summary.json")
    del summary["grpo"], summary["seconds"], summary["hardware"]
    shutil.rmtree(copy / "bc")
    shutil.rmtree(copy / "grpo")
    files.write_json(copy / "summary.json", summary)
    page = html.write_report(copy).read_text("utf-8")
    assert "BC against Base" in page and "Success so far went" in page


def test_single_evaluation(copy: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    files.write_json(alone / "eval.json", files.read_json(copy / "summary.json")["grpo"])
    shutil.copytree(copy / "eval" / "grpo" / "episodes", alone / "episodes")
    page = html.write_report(alone).read_text("utf-8")
    assert "Success is" in page and "Policy" in page and 'class="player"' in page


def test_missing_workdir_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        html.write_report(tmp_path / "nowhere")


def test_comparison_pairs_the_same_tasks_only() -> None:
    def evaluation(stage: str, rewards: dict[str, float]) -> workdirs.Evaluation:
        by_task = {(task, 0): reward for task, reward in rewards.items()}
        return workdirs.Evaluation(stage, 0.5, 2, (0, 1), {}, {}, by_task, {})

    before = evaluation("bc", {"a": 0, "b": 0, "c": 1})
    after = evaluation("grpo", {"a": 1, "b": 0, "d": 1})
    comparison = workdirs.compare(before, after)
    assert comparison is not None
    assert comparison.n == 2 and comparison.difference == 0.5
    assert workdirs.compare(before, evaluation("grpo", {"x": 1})) is None


def test_cases_differ_and_show_both_sides(workdir: Path) -> None:
    run = workdirs.load(workdir)
    cases = trajectories.choose(run.episodes)
    assert len({case.site for case in cases}) == len(cases) == 6
    assert all([player.stage for player in case.players] == ["bc", "grpo"] for case in cases)
    assert len(trajectories.choose(run.episodes, limit=2)) == 2
    assert trajectories.choose({}) == []


def test_cases_keep_to_the_picture_budget(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "PICTURE_BUDGET", 100)
    assert len(trajectories.choose(workdirs.load(workdir).episodes)) == 1


def test_step_says_what_was_seen_done_and_answered(workdir: Path) -> None:
    episodes = store.load_episodes(workdir / "eval" / "grpo" / "episodes" / "episodes.jsonl")
    solved = next(e for e in episodes if e.outcome is types.Outcome.SUCCESS)
    (case,) = trajectories.choose({"grpo": [solved]})
    first, *_, last = case.players[0].steps
    assert first.did == "Type “karrie” into textbox “Field 1”"
    assert first.thought == "Field 1 is next."
    assert [line for line, acted in first.seen if acted] == ["textbox Field 1 [1]"]
    assert first.answer == [("-", "textbox Field 1 [1]"), ("+", "textbox Field 1 [1] = karrie")]
    assert last.did == "Click on button “Login”"
    assert (first.prompt_tokens, first.response_tokens) == (80, 12)


def test_picture_is_cut_to_its_content(workdir: Path) -> None:
    episodes = store.load_episodes(workdir / "eval" / "grpo" / "episodes" / "episodes.jsonl")
    (case,) = trajectories.choose({"grpo": episodes[:1]})
    shot = case.players[0].steps[0].shot
    assert shot is not None and shot.size == (640, 400)
    x, y, width, height = shot.crop
    assert (x, y) == (0, 0) and 270 < width < 290 and 190 < height < 210
    assert shot.mark == (20, 60, 210, 32)


def test_unreadable_picture_costs_the_picture_alone(workdir: Path) -> None:
    (episode, *_) = store.load_episodes(workdir / "eval" / "grpo" / "episodes" / "episodes.jsonl")
    (case,) = trajectories.choose({"grpo": [with_pictures(episode, b"no JPEG")]})
    assert case.players[0].steps[0].shot is None


def with_pictures(episode: types.Episode, picture: bytes) -> types.Episode:
    turns = tuple(dataclasses.replace(turn, picture=picture) for turn in episode.turns)
    return dataclasses.replace(episode, turns=turns, last_picture=picture)


def test_smoothing_ignores_what_is_absent() -> None:
    smoothed = plots.smooth([1.0, np.nan, 3.0, 5.0, np.nan, np.nan, np.nan], 3)
    np.testing.assert_allclose(smoothed, [1, 2, 4, 4, 5, np.nan, np.nan])
    np.testing.assert_allclose(plots.smooth([2.0], 5), [2.0])


def test_drawing_takes_its_colours_from_the_page() -> None:
    drawing = plots.curve([1, 2, 3], [0.1, 0.5, 0.2], label="Reward & more", rate=True)
    assert "var(--accent)" in drawing and 'aria-label="Reward &amp; more"' in drawing
    assert not re.search(r"#0[123]0[123]0[123]", drawing)
    assert not re.search(r"<g id=|<style|font-family: '", drawing)


def test_metrics_without_a_value_are_skipped(tmp_path: Path) -> None:
    writer = metrics.JsonlWriter(tmp_path / "grpo" / "metrics.jsonl")
    writer.write(1, {"reward": 0.1})
    writer.write(2, {"reward": float("nan"), "kl": 1.0})
    writer.write(3, {"reward": 0.3})
    records = metrics.read_metrics(tmp_path / "grpo" / "metrics.jsonl")
    assert workdirs.series(records, "reward") == ([1, 3], [0.1, 0.3])
    assert "Reward" in html.write_report(tmp_path).read_text("utf-8")


def test_launcher_rebuilds_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = main_of("report")
    with flagsaver.flagsaver(workdir=str(tmp_path)):
        main(["report.py"])
        assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
        with pytest.raises(app.UsageError, match="extra"):
            main(["report.py", "extra"])
    with flagsaver.flagsaver(workdir=str(tmp_path / "no")), pytest.raises(app.UsageError):
        main(["report.py"])
