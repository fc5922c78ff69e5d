"""Tests of the static HTML of the report."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import quickstart
from webagent_jax.config import ConfigError
from webagent_jax.report import html, run_list, run_loader
from webagent_jax.tracking import atomic_files, metric_writers


@pytest.fixture
def workdir_copy(workdir: Path, tmp_path: Path) -> Path:
    shutil.copytree(workdir, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def page(workdir: Path) -> str:
    return html.write_report(workdir).read_text("utf-8")


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_report_contains_all_sections(page: str) -> None:
    assert "Success went from" in page and "M-GRPO against BC" in page
    assert 'id="training"' in page and 'id="tasks"' in page and 'id="trajectories"' in page
    assert "160 episodes" in page
    tags = Tags(page).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_report_needs_no_other_files(page: str) -> None:
    link_attrs = [attrs for _, attrs in Tags(page).tags if "src" in attrs or "href" in attrs]
    assert all(str(attrs.get("href", "#")).startswith(("#", "data:")) for attrs in link_attrs)
    assert not any("src" in attrs for attrs in link_attrs)
    assert sum(tag == "script" for tag, _ in Tags(page).tags) == 1


def test_comparison_counts_and_links_learned_tasks(workdir: Path, page: str) -> None:
    comparison = run_loader.load_run(workdir).comparison
    assert comparison is not None and sum(comparison.changes.values()) == comparison.n == 48
    learned = comparison.changes[(False, True)]
    assert f'href="#log=grpo&amp;change=learned"><b>{learned}</b>' in page


def test_audit_counts_findings_by_log(page: str) -> None:
    (table,) = re.findall(r'<table class="audit">.*?</table>', page, re.DOTALL)
    assert re.findall(r'scope="col"[^>]*>([^<]*)<', table) == [
        "Finding",
        "Base",
        "BC",
        "Training",
        "M-GRPO",
    ]
    # Each failed episode has one unparsable response, and 4 of 16 training episodes fail.
    assert re.search(r'href="#log=training&amp;finding=unparsable">4</a> <small>25', table)
    assert "finding=loop" not in table


def test_report_escapes_workdir_text(workdir_copy: Path) -> None:
    hostile = '<img src=x onerror="document.title=1">'
    summary = atomic_files.read_json(workdir_copy / "summary.json")
    summary["hardware"] = {hostile: hostile}
    summary["grpo"]["by_site"][hostile] = {
        "success_rate": 0.5,
        "n": 2,
        "ci95": [0.1, 0.9],
    }
    summary["grpo"]["infra"] = [{"task_id": hostile, "infra_error": hostile}]
    atomic_files.write_json(workdir_copy / "summary.json", summary)
    page = html.write_report(workdir_copy).read_text("utf-8")
    assert "&lt;img src=x" in page
    assert not any(tag == "img" or "onerror" in attrs for tag, attrs in Tags(page).tags)


@pytest.mark.parametrize("missing", ["summary.json", "grpo/metrics.jsonl", "eval"])
def test_report_omits_sections_without_data(workdir_copy: Path, missing: str) -> None:
    shutil.rmtree(workdir_copy / "bc")  # drawing its curves is slow
    shutil.rmtree(workdir_copy / "grpo" / "episodes")
    (workdir_copy / missing).rename(workdir_copy / "away")
    page = html.write_report(workdir_copy).read_text("utf-8")
    assert ("M-GRPO against BC" in page) is (missing != "summary.json")
    assert ('id="training"' in page) is (missing != "grpo/metrics.jsonl")
    assert ('id="trajectories"' in page) is (missing != "eval")


def test_empty_workdir_is_reported_as_in_progress(tmp_path: Path) -> None:
    assert "This run is in progress" in html.write_report(tmp_path).read_text("utf-8")


def test_finished_training_is_reported(tmp_path: Path) -> None:
    metric_writers.JsonlWriter(tmp_path / "metrics.jsonl").write(1, {"reward": 0.5})
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    page = html.write_report(tmp_path).read_text("utf-8")
    assert "Training finished: 1 updates" in page and "in progress" not in page
    assert f"webagent evaluate --config.policy.path={tmp_path / 'policy'}" in page


def test_evaluation_without_scored_episode_has_no_rate(unscored_workdir: Path) -> None:
    page = html.write_report(unscored_workdir).read_text("utf-8")
    assert "<h1>No scored episode</h1>" in page and '<p class="big">–' in page
    assert "on 0 held-out episodes" not in page
    assert "Policy: 3 without a reward" in page


def test_report_of_partial_run_compares_bc_with_base(workdir_copy: Path) -> None:
    summary = atomic_files.read_json(workdir_copy / "summary.json")
    del summary["grpo"], summary["seconds"], summary["hardware"]
    shutil.rmtree(workdir_copy / "bc")
    shutil.rmtree(workdir_copy / "grpo")
    atomic_files.write_json(workdir_copy / "summary.json", summary)
    page = html.write_report(workdir_copy).read_text("utf-8")
    assert "BC against Base" in page and "Success so far went" in page


def test_report_ignores_truncated_log_lines(workdir_copy: Path) -> None:
    for log in ("grpo/metrics.jsonl", "grpo/episodes/update-00002.jsonl"):
        content = (workdir_copy / log).read_bytes()
        (workdir_copy / log).write_bytes(content[:-20])
    page = html.write_report(workdir_copy).read_text("utf-8")
    assert "159 episodes" in page and "over 39 updates" in page


def test_report_of_single_evaluation_shows_all_fields(workdir_copy: Path, tmp_path: Path) -> None:
    eval_dir = tmp_path / "alone"
    record = atomic_files.read_json(workdir_copy / "summary.json")["grpo"]
    atomic_files.write_json(
        eval_dir / "eval.json",
        record
        | {
            "by_outcome": {**record["by_outcome"], "INFRA": 1},
            "by_max_turns": [
                {"max_turns": 5, "success_rate": 0.25, "n": 48, "ci95": [0.1, 0.4]},
                {"max_turns": 10, "success_rate": 0.5, "n": 48, "ci95": [0.4, 0.6]},
            ],
            "pass_at_k": {
                "1": {"rate": 0.5, "n": 48, "ci95": [0.4, 0.6]},
                "2": {"rate": 0.75, "n": 47, "ci95": [0.6, 0.9]},
            },
            "turns": {"mean": 3.0, "p50": 3, "p90": 4, "max": 9},
            "parse_error_rate": 0.125,
            "utilization": {"browser": 0.5},
            "usage": {"prompt_tokens": 12345, "completion_tokens": 678, "dollars": 1.25},
            "infra": [{"task_id": "miniwob/lost/1", "infra_error": "Chromium is gone"}],
        },
    )
    page = html.write_report(eval_dir).read_text("utf-8")
    assert "Success is" in page and "Policy" in page
    assert "Policy 25% at 5, 50% at 10" in page and "Policy 50% at 1, 75% at 2" in page
    # One of the 48 tasks has one attempt with a reward only.
    assert "Policy, tasks with enough attempts that have a reward: 47 of 48 for 2 attempts." in page
    assert "12.5 %" in page and "1.25 dollars" in page and "12,345" in page
    assert "browser 50 %" in page
    assert "1 without a reward" in page and "Chromium is gone" in page
    assert 'id="trajectories"' not in page


def test_report_names_split(workdir_copy: Path) -> None:
    def text() -> str:
        return html.render(run_loader.load_run(workdir_copy))

    assert "Held-out episodes. Lines" in text()
    path = workdir_copy / "config.json"
    content = atomic_files.read_json(path) if path.exists() else {"config": {}, "commit": "0"}
    content["config"]["eval"] = {"split": "train"}
    atomic_files.write_json(path, content)
    assert "Training episodes. Lines" in text() and "eld-out episodes" not in text()


def test_missing_workdir_error_names_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        html.write_report(tmp_path / "nowhere")


def test_comparison_pairs_common_tasks() -> None:
    def make_evaluation(stage: str, rewards: dict[str, float]) -> run_loader.Evaluation:
        return run_loader.Evaluation(stage, 0.5, 2, (0, 1), {}, {}, rewards)

    baseline = make_evaluation("bc", {"a": 0, "b": 0, "c": 1})
    candidate = make_evaluation("grpo", {"a": 1, "b": 0, "d": 1})
    comparison = run_loader.compare(baseline, candidate)
    assert comparison is not None
    assert comparison.n == 2 and comparison.difference == 0.5
    assert comparison.changes == {(False, True): 1, (False, False): 1}
    assert run_loader.compare(baseline, make_evaluation("grpo", {"x": 1})) is None


def test_report_and_quickstart_compare_first_attempts(tmp_path: Path) -> None:
    def make_record(*rewards: tuple[int, int]) -> dict[str, Any]:
        tasks = [
            {"task_id": f"t/{task}", "attempt": attempt, "reward": reward}
            for task, attempts in enumerate(rewards)
            for attempt, reward in enumerate(attempts)
        ]
        return {"success_rate": 0.5, "n": len(tasks), "ci95": [0.0, 1.0], "tasks": tasks}

    bc, grpo = make_record((0, 1), (0, 1), (1, 0)), make_record((1, 0), (1, 0), (1, 0))
    atomic_files.write_json(tmp_path / "summary.json", {"bc": bc, "grpo": grpo})
    comparison = run_loader.load_run(tmp_path).comparison
    assert comparison is not None
    assert comparison.n == 3 and comparison.difference == pytest.approx(2 / 3)
    assert quickstart._paired_difference(grpo, bc) == {
        "difference": comparison.difference,
        "ci95": list(comparison.ci95),
        "n": 3,
    }


@pytest.mark.parametrize(
    ("name", "content"), [("eval.json", [1, 2]), ("summary.json", [1]), ("eval.json", {"n": 1})]
)
def test_foreign_file_is_an_error_of_its_folder(name: str, content: object, tmp_path: Path) -> None:
    atomic_files.write_json(tmp_path / name, content)
    with pytest.raises(ValueError, match="do not have the format of webagent_jax"):
        run_loader.load_run(tmp_path)
    assert run_list.read_run(tmp_path, tmp_path).error


def write_curve(folder: Path, config: dict[str, object], level: float) -> Path:
    atomic_files.write_json(folder / "config.json", {"config": config})
    writer = metric_writers.JsonlWriter(folder / "metrics.jsonl")
    for step in (1, 2, 3):
        writer.write(step, {"reward": level + 0.1 * step})
    return folder


def test_report_overlays_runs_and_averages_seeds(tmp_path: Path) -> None:
    first = write_curve(tmp_path / "first", {"seed": 0, "x": 1}, 0.1)
    second = write_curve(tmp_path / "second", {"seed": 1, "x": 1}, 0.3)
    other = write_curve(tmp_path / "other", {"seed": 0, "x": 2}, 0.5)
    page = html.write_report(first, [second, other]).read_text("utf-8")
    assert "first, second" in page and "(2 runs)" in page
    (svg,) = re.findall(r'<svg[^>]*aria-label="M-GRPO: Reward.*?</svg>', page, re.DOTALL)
    assert "over 3 updates, 45% at the end" in svg  # mean of 35 % and 55 %, each of two points
    assert "var(--series-0)" in svg and "var(--series-1)" in svg


def test_curves_of_runs_with_equal_folder_names_have_distinct_names(tmp_path: Path) -> None:
    first = write_curve(tmp_path / "r1" / "grpo", {"x": 1}, 0.1)
    other = write_curve(tmp_path / "zero" / "grpo", {"x": 2}, 0.5)
    page = html.write_report(first, [other]).read_text("utf-8")
    assert "r1/grpo" in page and "zero/grpo" in page
    assert "r1/grpo" not in html.write_report(first).read_text("utf-8")


def test_launcher_rebuilds_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = load_main("report")
    with (
        flagsaver.flagsaver(workdir=str(tmp_path)),
        pytest.raises(ConfigError, match="is not a run"),
    ):
        main(["report.py"])
    assert not list(tmp_path.iterdir())
    # The config.json of a policy has another form.
    atomic_files.write_json(tmp_path / "config.json", {"hidden_size": 96})
    with (
        flagsaver.flagsaver(workdir=str(tmp_path)),
        pytest.raises(ConfigError, match="is not a run"),
    ):
        main(["report.py"])
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    atomic_files.write_json(tmp_path / "config.json", {"config": {}, "commit": ""})
    with flagsaver.flagsaver(workdir=str(tmp_path)):
        main(["report.py"])
        output = capsys.readouterr().out
        assert "No evaluation has finished yet." in output
        assert output.strip().endswith(f"Open {tmp_path / 'report.html'}")
        with pytest.raises(ConfigError, match="extra"):
            main(["report.py", "extra"])
    with flagsaver.flagsaver(workdir=str(tmp_path / "no")), pytest.raises(ConfigError):
        main(["report.py"])
    with (
        flagsaver.flagsaver(workdir=str(tmp_path), extra_workdirs=[str(tmp_path / "neither")]),
        pytest.raises(ConfigError, match="neither"),
    ):
        main(["report.py"])
