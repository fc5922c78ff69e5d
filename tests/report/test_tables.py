"""Tests of the printed tables of evaluations and comparisons."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from absl import flags
from absl.testing import flagsaver

from webagent_jax import types
from webagent_jax.config import ConfigError, EvalConfig, RunConfig, SuiteConfig, WebArenaConfig
from webagent_jax.report import comparison, eval_table, paper_results, tables
from webagent_jax.tracking import episode_log, episode_stats

LITE = ("reddit", "gitlab", "shopping_admin", "map", "shopping")


def make_eval_record(
    rewards: dict[str, float | None], suite: Any = "miniwob", **options: Any
) -> Any:
    """Return an eval.json with these rewards by task ID; the site precedes the slash of the ID."""
    episodes = [
        types.Episode(
            task=types.Task(task, suite, tuple(task.split("/")[0].split("+")), "", ""),
            intent="",
            turns=(),
            reward=reward,
            outcome=types.Outcome.INFRA if reward is None else types.Outcome.FAILURE,
            infra_error="gone" if reward is None else "",
        )
        for task, reward in rewards.items()
    ]
    cfg = RunConfig(
        suite=SuiteConfig(name=suite, webarena=WebArenaConfig(test_file="x")),
        eval=EvalConfig(**options),
    )
    report = episode_stats.summarize(episodes, 61.0, utilization={"browser": 0.25, "engine": 0.5})
    return json.loads(json.dumps(episode_log.eval_json(report, cfg, "abc")))


def make_rewards(
    sites: tuple[str, ...], num_tasks: int, success_rate: float
) -> dict[str, float | None]:
    return {
        f"{site}/{i}": float(i < success_rate * num_tasks)
        for site in sites
        for i in range(num_tasks)
    }


def parse_row(output: str, prefix: str) -> list[str]:
    """Return the cells of the row that starts with `prefix`."""
    (row,) = [line for line in output.splitlines() if line.startswith(prefix)]
    return re.split(r"\s{2,}", row.strip())


def test_table_has_row_with_interval_per_page() -> None:
    output = tables.evaluation(make_eval_record(make_rewards(("b", "a"), 10, 0.5)))
    assert parse_row(output, "a ") == ["a", "50.0", "23.7 to 76.3", "10"]
    assert parse_row(output, "all ") == ["all", "50.0", "29.9 to 70.1", "20"]
    assert output.index("\na ") < output.index("\nb ") < output.index("\nall ")
    assert "published" not in output and "1:01 of wall-clock time" in output
    assert "browsers 25.0 %, engine 50.0 %" in output


def test_webarena_lite_table_includes_published_rows() -> None:
    rewards = make_rewards(("shopping", "map", "gitlab"), 4, 0.25) | {"gitlab+reddit/1": 1.0}
    output = tables.evaluation(make_eval_record(rewards, "webarena_lite"))
    assert parse_row(output, "success, %") == [
        *("success, %", "Reddit", "GitLab", "CMS", "Map", "Shopping", "Avg")
    ]
    assert parse_row(output, "this policy") == [
        "this policy",
        "-",
        "25.0",
        "-",
        "25.0",
        "25.0",
        "30.8",
    ]
    assert parse_row(output, "  episodes") == ["episodes", "0", "4", "0", "4", "4", "13"]
    assert parse_row(output, "published: Llama-3.1-8B, WebAgent-R1") == [
        *("published: Llama-3.1-8B, WebAgent-R1", "47.4", "56.7", "57.1", "23.1", "44.4", "44.8")
    ]
    assert "165 tasks, of which this evaluation has 13" in output
    assert "Avg includes 1 episodes of tasks across sites" in output


def test_table_of_other_site_has_its_column_and_no_published_rows() -> None:
    rewards = make_rewards(("map", "crm"), 4, 0.25)
    output = tables.evaluation(make_eval_record(rewards, "webarena_lite"))
    assert parse_row(output, "success, %")[-3:] == ["Shopping", "crm", "Avg"]
    assert parse_row(output, "this policy")[-3:] == ["-", "25.0", "25.0"]
    assert "published" not in output and "Published" not in output


def test_table_of_all_tasks_of_webarena_omits_published_rows() -> None:
    output = tables.evaluation(make_eval_record(make_rewards(("map",), 166, 0.5), "webarena_lite"))
    assert "published" not in output and "Published" not in output
    record = make_eval_record(make_rewards(("map",), 4, 0.5), "webarena_lite")
    assert "published" in tables.evaluation(record)
    record["config"]["suite"]["webarena"]["matching_rules"] = "webarena"
    assert "published" not in tables.evaluation(record)


def test_train_split_table_omits_published_rows() -> None:
    output = tables.evaluation(
        make_eval_record(make_rewards(LITE, 2, 0.5), "webarena_lite", split="train")
    )
    assert "Reddit" in output and "ublished" not in output


def test_arena_table_uses_arena_column_names() -> None:
    output = tables.evaluation(make_eval_record(make_rewards(LITE, 2, 0.5), "arena"))
    assert parse_row(output, "success, %")[1:] == ["Forum", "Code", "Admin", "Map", "Shop", "Avg"]
    assert "not WebArena" in output and "ublished" not in output


@pytest.mark.parametrize("suite", ["arena", "webarena_lite"])
def test_suite_of_factory_has_rows_of_its_sites(suite: str) -> None:
    record = make_eval_record({"cafe/0": 1.0}, suite)
    record["config"]["suite"]["factory"] = "cafe:make_suite"
    output = tables.evaluation(record)
    assert parse_row(output, "cafe ")[1] == "100.0"
    assert "WebArena" not in output and "ublished" not in output


def test_published_average_matches_site_rates() -> None:
    """The site rates, weighted by the task counts of the test split, give the average."""
    counts = dict(zip(LITE, (19, 30, 35, 26, 45), strict=True))
    row = next(row for row in paper_results.WEBARENA_LITE if row.policy == "Qwen2.5-3B, BC")
    successes = [
        round((rate or 0) / 100 * n) for rate, n in zip(row.by_site, counts.values(), strict=True)
    ]
    assert successes == [8, 5, 8, 7, 5]
    assert 100 * sum(successes) / paper_results.TASKS == pytest.approx(row.average, abs=0.05)
    assert tuple(paper_results.COLUMNS) == LITE


# --- comparisons ---------------------------------------------------------------------------------


def test_comparison_pairs_common_tasks() -> None:
    baseline = make_eval_record({"a/1": 0.0, "a/2": 1.0, "a/3": 1.0, "a/4": None, "a/9": 1.0})
    candidate = make_eval_record({"a/1": 1.0, "a/2": 0.0, "a/3": 1.0, "a/4": 1.0, "a/5": 1.0})
    result = comparison.compare(candidate, baseline)
    assert (result.n, result.difference, result.p) == (3, 0.0, 1.0)
    assert (result.gained, result.lost) == (("a/1",), ("a/2",))
    assert (result.only_candidate, result.only_baseline) == (2, 1)
    output = tables.comparison_text(result, "runs/before")
    assert (
        "Against runs/before: +0.0 points" in output
        and "over the first attempts at 3 paired tasks" in output
    )
    assert "on one side only: 2 of this evaluation, 1 of runs/before" in output


def test_comparison_pairs_first_attempts() -> None:
    baseline = make_eval_record({"a/1": 0.0, "a/2": 0.0})
    candidate = make_eval_record({"a/1": 1.0, "a/2": 1.0})
    candidate["tasks"] += [{**task, "attempt": 1, "reward": 0.0} for task in candidate["tasks"]]
    result = comparison.compare(candidate, baseline)
    assert (result.n, result.difference) == (2, 1.0)


def test_long_task_lists_are_truncated() -> None:
    baseline, candidate = (make_eval_record(make_rewards(("a",), 30, rate)) for rate in (0.0, 0.8))
    output = tables.comparison_text(comparison.compare(candidate, baseline), "it")
    assert "learned:   24 (a/0, " in output and "a/9 and 14 more)" in output


def test_comparison_without_common_tasks_raises_error() -> None:
    with pytest.raises(ConfigError, match=r"share no task .* a/0 and 3 more, the other b/0"):
        comparison.compare(
            make_eval_record(make_rewards(("a",), 4, 0.5)),
            make_eval_record(make_rewards(("b",), 4, 0.5)),
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "contains no evaluation"), ("{", "is not an eval"), ("[1]", "is not an eval.json")],
)
def test_invalid_eval_file_raises_error(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "eval.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        comparison.read(tmp_path)


def test_unscored_lists_episodes_without_reward() -> None:
    output = tables.infra_text(
        make_eval_record({f"a/{i}": None for i in range(12)} | {"a/99": 1.0})
    )
    assert "12 of 13 episodes have no reward" in output
    assert "a/0: gone" in output and "and 2 more" in output


# --- ablations -----------------------------------------------------------------------------------


@pytest.fixture
def eval_dirs(tmp_path: Path) -> dict[str, Path]:
    success_rates = {"bc": 0.2, "r1": 0.5, "zero": 0.1}
    for name, success_rate in success_rates.items():
        (tmp_path / name).mkdir()
        content = json.dumps(make_eval_record(make_rewards(("a",), 40, success_rate)))
        (tmp_path / name / "eval.json").write_text(content)
    return {name: tmp_path / name for name in success_rates}


def run_compare(output_dir: Path, *args: str) -> None:
    from webagent_jax.commands import compare as launcher

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(output_dir=str(output_dir)):
        launcher.main(["compare", *args])


def test_compare_writes_table_and_figure(
    eval_dirs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = (
        f"R1/BC={eval_dirs['bc']}",
        f"R1/RL={eval_dirs['r1']}/eval.json",
        f"0/RL={eval_dirs['zero']}",
    )
    run_compare(tmp_path / "out", *args)
    output = capsys.readouterr().out
    assert parse_row(output, "R1, BC")[:4] == ["R1, BC", "20.0", "10.5 to 34.8", "40"]
    assert parse_row(output, "R1, RL")[-1] == "+30.0 (+18.1 to +45.4), p = 0.00049"
    table = (tmp_path / "out" / "compare.md").read_text()
    head, rule, *rows = table.splitlines()
    assert head.count("|") == rule.count("|") == rows[0].count("|") == 8
    assert "| 0, RL | 10.0 | 4.0 to 23.1 | 40 |" in table
    figure = ElementTree.parse(tmp_path / "out" / "compare.svg").getroot()
    assert figure.tag == "{http://www.w3.org/2000/svg}svg"
    label = figure.attrib["aria-label"]
    assert label == "Success rate: R1, BC 20.0 %; R1, RL 50.0 %; 0, RL 10.0 %"
    texts = {"".join(text.itertext()).strip() for text in figure.iter() if "text" in text.tag}
    assert {"R1", "0", "BC", "RL", "50.0"} <= texts


def test_warnings_report_other_tasks_and_missing_rewards(eval_dirs: dict[str, Path]) -> None:
    (eval_dirs["r1"] / "eval.json").write_text(
        json.dumps(make_eval_record({"a/0": None, "a/1": 1.0}))
    )
    entries = eval_table.read([f"BC={eval_dirs['bc']}", f"R1={eval_dirs['r1']}"])
    assert eval_table.warnings(entries) == [
        "R1 was evaluated on other tasks than BC.",
        "R1 omits 1 episodes without a reward (INFRA).",
    ]


def test_compare_shows_no_rate_without_scored_episode(
    eval_dirs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (eval_dirs["r1"] / "eval.json").write_text(json.dumps(make_eval_record({"a/0": None})))
    run_compare(tmp_path / "out", f"BC={eval_dirs['bc']}", f"R1={eval_dirs['r1']}")
    row = parse_row(capsys.readouterr().out, "R1  ")
    assert row[:4] == ["R1", "-", "0.0 to 100.0", "0"] and row[-1] == "no common task"
    figure = ElementTree.parse(tmp_path / "out" / "compare.svg").getroot()
    assert figure.attrib["aria-label"] == "Success rate: BC 20.0 %; R1 - %"


def test_warnings_report_several_attempts(eval_dirs: dict[str, Path]) -> None:
    record = json.loads((eval_dirs["bc"] / "eval.json").read_text())
    record["tasks"].append(record["tasks"][0] | {"attempt": 1})
    (eval_dirs["r1"] / "eval.json").write_text(json.dumps(record))
    entries = eval_table.read([f"BC={eval_dirs['bc']}", f"R1={eval_dirs['r1']}"])
    assert eval_table.warnings(entries) == [
        "Paired differences use the first attempt at each task."
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "no evaluations: pass one or more"),
        (["runs/eval"], "contains no evaluation"),
        (["=runs/eval"], "must have the form NAME=DIR"),
        (["R1=/nowhere"], "contains no evaluation"),
    ],
)
def test_invalid_eval_arguments_raise_error(args: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        eval_table.read(args)


def test_folder_without_name_is_the_name(eval_dirs: dict[str, Path]) -> None:
    entries = eval_table.read([str(eval_dirs["bc"]), f"R1={eval_dirs['r1']}"])
    assert [entry.name for entry in entries] == [str(eval_dirs["bc"]), "R1"]


def test_duplicate_names_raise_error(eval_dirs: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="R1/a occurs twice"):
        eval_table.read([f"R1/a={eval_dirs['r1']}", f"R1/a={eval_dirs['bc']}"])
