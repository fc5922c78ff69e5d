"""What is printed of evaluations, and of several of them side by side."""

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


def record(rewards: dict[str, float | None], suite: Any = "miniwob", **options: Any) -> Any:
    """An eval.json with these rewards by task; a task's site is what stands before the slash."""
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


def solved(sites: tuple[str, ...], of: int, share: float) -> dict[str, float | None]:
    return {f"{site}/{i}": float(i < share * of) for site in sites for i in range(of)}


def cells(told: str, start: str) -> list[str]:
    """Of the row that starts so."""
    (row,) = [line for line in told.splitlines() if line.startswith(start)]
    return re.split(r"\s{2,}", row.strip())


def test_pages_have_a_row_each_with_their_intervals() -> None:
    told = tables.evaluation(record(solved(("b", "a"), 10, 0.5)))
    assert cells(told, "a ") == ["a", "50.0", "23.7 to 76.3", "10"]
    assert cells(told, "all ") == ["all", "50.0", "29.9 to 70.1", "20"]
    assert told.index("\na ") < told.index("\nb ") < told.index("\nall ")
    assert "published" not in told and "1:01 of wall-clock time" in told
    assert "browsers 25.0 %, engine 50.0 %" in told


def test_webarena_lite_has_the_papers_columns_and_its_rows_marked_as_published() -> None:
    rewards = solved(("shopping", "map", "gitlab"), 4, 0.25) | {"gitlab+reddit/1": 1.0}
    told = tables.evaluation(record(rewards, "webarena_lite"))
    assert cells(told, "success, %") == [
        *("success, %", "Reddit", "GitLab", "CMS", "Map", "Shopping", "Avg")
    ]
    assert cells(told, "this policy") == ["this policy", "-", "25.0", "-", "25.0", "25.0", "30.8"]
    assert cells(told, "  episodes") == ["episodes", "0", "4", "0", "4", "4", "13"]
    assert cells(told, "published: Llama-3.1-8B, WebAgent-R1") == [
        *("published: Llama-3.1-8B, WebAgent-R1", "47.4", "56.7", "57.1", "23.1", "44.4", "44.8")
    ]
    assert "165 tasks, of which this evaluation has 13" in told
    assert "Avg includes 1 episodes of tasks across sites" in told


def test_only_the_test_split_of_webarena_lite_is_beside_what_was_published() -> None:
    told = tables.evaluation(record(solved(LITE, 2, 0.5), "webarena_lite", split="train"))
    assert "Reddit" in told and "ublished" not in told


def test_the_arena_has_the_same_columns_by_its_own_names() -> None:
    told = tables.evaluation(record(solved(LITE, 2, 0.5), "arena"))
    assert cells(told, "success, %")[1:] == ["Forum", "Code", "Admin", "Map", "Shop", "Avg"]
    assert "not WebArena" in told and "ublished" not in told


def test_published_averages_are_of_their_sites() -> None:
    """With the counts of the test split, and between none and all of the 10 tasks across sites."""
    counts = dict(zip(LITE, (19, 30, 35, 26, 45), strict=True))
    row = next(row for row in paper_results.WEBARENA_LITE if row.policy == "Qwen2.5-3B, BC")
    hits = [
        round((rate or 0) / 100 * n) for rate, n in zip(row.by_site, counts.values(), strict=True)
    ]
    assert hits == [8, 5, 8, 7, 5]
    assert 100 * sum(hits) / paper_results.TASKS == pytest.approx(row.average, abs=0.05)
    assert tuple(paper_results.COLUMNS) == LITE


# --- comparisons ---------------------------------------------------------------------------------


def test_comparisons_are_over_the_tasks_that_both_have() -> None:
    before = record({"a/1": 0.0, "a/2": 1.0, "a/3": 1.0, "a/4": None, "a/9": 1.0})
    after = record({"a/1": 1.0, "a/2": 0.0, "a/3": 1.0, "a/4": 1.0, "a/5": 1.0})
    found = comparison.compare(after, before)
    assert (found.n, found.difference, found.p) == (3, 0.0, 1.0)
    assert (found.gained, found.lost) == (("a/1",), ("a/2",))
    assert (found.only_candidate, found.only_baseline) == (2, 1)
    told = tables.comparison_text(found, "runs/before")
    assert "Against runs/before: +0.0 points" in told and "over 3 paired tasks" in told
    assert "on one side only: 2 of this evaluation, 1 of runs/before" in told


def test_only_first_attempts_are_paired() -> None:
    one = record({"a/1": 0.0, "a/2": 0.0})
    again = record({"a/1": 1.0, "a/2": 1.0})
    again["tasks"] += [{**task, "attempt": 1, "reward": 0.0} for task in again["tasks"]]
    found = comparison.compare(again, one)
    assert (found.n, found.difference) == (2, 1.0)


def test_long_lists_are_cut() -> None:
    before, after = (record(solved(("a",), 30, share)) for share in (0.0, 0.8))
    told = tables.comparison_text(comparison.compare(after, before), "it")
    assert "solved now: 24 (a/0, " in told and "a/9 and 14 more)" in told


def test_evaluations_without_a_common_task_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"share no task .* a/0 and 3 more, the other b/0"):
        comparison.compare(record(solved(("a",), 4, 0.5)), record(solved(("b",), 4, 0.5)))


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "contains no evaluation"), ("{", "not valid JSON"), ("[1]", "is not an eval.json")],
)
def test_what_is_no_evaluation_is_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "eval.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        comparison.read(tmp_path)


def test_episodes_without_a_reward_are_named() -> None:
    told = tables.infra_text(record({f"a/{i}": None for i in range(12)} | {"a/99": 1.0}))
    assert "12 of 13 episodes have no reward" in told
    assert "a/0: gone" in told and "and 2 more" in told


# --- ablations -----------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    shares = {"bc": 0.2, "r1": 0.5, "zero": 0.1}
    for name, share in shares.items():
        (tmp_path / name).mkdir()
        content = json.dumps(record(solved(("a",), 40, share)))
        (tmp_path / name / "eval.json").write_text(content)
    return {name: tmp_path / name for name in shares}


def compare(out: Path, *told: str) -> None:
    from launch import compare_evals as launcher

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(output_dir=str(out)):
        launcher.main(["compare", *told])


def test_ablations_are_a_table_and_a_figure(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = (f"R1/BC={folders['bc']}", f"R1/RL={folders['r1']}/eval.json", f"0/RL={folders['zero']}")
    compare(tmp_path / "out", *told)
    printed = capsys.readouterr().out
    assert cells(printed, "R1, BC")[:4] == ["R1, BC", "20.0", "10.5 to 34.8", "40"]
    assert cells(printed, "R1, RL")[-1] == "+30.0 (+18.1 to +45.4), p = 0.00049"
    written = (tmp_path / "out" / "compare.md").read_text()
    head, rule, *rows = written.splitlines()
    assert head.count("|") == rule.count("|") == rows[0].count("|") == 8
    assert "| 0, RL | 10.0 | 4.0 to 23.1 | 40 |" in written
    figure = ElementTree.parse(tmp_path / "out" / "compare.svg").getroot()
    assert figure.tag == "{http://www.w3.org/2000/svg}svg"
    label = figure.attrib["aria-label"]
    assert label == "Success rate: R1, BC 20.0 %; R1, RL 50.0 %; 0, RL 10.0 %"
    texts = {"".join(text.itertext()).strip() for text in figure.iter() if "text" in text.tag}
    assert {"R1", "0", "BC", "RL", "50.0"} <= texts


def test_other_tasks_and_missing_rewards_are_told(folders: dict[str, Path]) -> None:
    (folders["r1"] / "eval.json").write_text(json.dumps(record({"a/0": None, "a/1": 1.0})))
    entries = eval_table.read([f"BC={folders['bc']}", f"R1={folders['r1']}"])
    assert eval_table.warnings(entries) == [
        "R1 was evaluated on other tasks than BC.",
        "R1 omits 1 episodes without a reward (INFRA).",
    ]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([], "no evaluations: pass one or more"),
        (["runs/eval"], "must have the form NAME=DIR"),
        (["=runs/eval"], "must have the form NAME=DIR"),
        (["R1=/nowhere"], "contains no evaluation"),
    ],
)
def test_what_cannot_be_compared_is_refused(told: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        eval_table.read(told)


def test_names_are_told_once(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="R1/a occurs twice"):
        eval_table.read([f"R1/a={folders['r1']}", f"R1/a={folders['bc']}"])
