"""Evaluations: what is played and counted, and that a kill at any moment costs neither."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from ml_collections import config_flags

from webagent_jax import config, evaluate, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.config import ConfigError, EvalConfig, RunConfig, SuiteConfig
from webagent_jax.endpoint import Usage
from webagent_jax.rollout import Collector, EpisodeConfig
from webagent_jax.tracking.episode_log import load_episodes
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import Completion, InfraError, Observation, ResetResult, StepResult, Task

ROOT = Path(__file__).parents[1]
PRESS = '<answer> do(action="Click", element="1") </answer>'
TIMES = ("seconds", "episode_seconds", "utilization")  # of an eval.json


# --- a suite of pages that want to be pressed, in place of the browser's -------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


class Page:
    """Solved by so many presses as its world's number says, and one more."""

    def __init__(self, task: Task, faulty: bool) -> None:
        self._left, self._faulty = task.seed + 1, faulty

    def _page(self, error: str | None = None) -> Observation:
        return Observation("button go [1]", "http://fake/", error=error)

    def reset(self) -> ResetResult:
        return ResetResult("Press it", self._page(), {})

    def step(self, action) -> StepResult:
        if self._faulty:
            raise InfraError("the browser is gone")
        self._left -= action.element_id == "1"
        return StepResult(self._page(), terminated=self._left == 0, seconds={})

    def compute_reward(self, answer) -> float:
        return float(self._left == 0)

    def screenshot(self) -> bytes:
        return b"jpeg"

    def close(self) -> None:
        pass


class Pages:
    """Two pages with ten worlds each. `faults` is how many tries at a task the browser spoils."""

    def __init__(self, faults: dict[str, int] | None = None, names=("a", "b")) -> None:
        self.faults = Counter(faults)
        self._names = names

    def task_names(self, split):
        return self._names

    def task(self, name, split, index):
        return Task(f"fake/{split}/{name}/{index}", "fake", (name,), "", "", range(10)[index])

    def make_env(self, task):
        self.faults[task.id] -= 1
        return Page(task, faulty=self.faults[task.id] >= 0)


@dataclasses.dataclass
class Presser:
    """Presses; when sampling, in two of three turns, which ones the seed says."""

    tokenizer: ChatTokenizer
    temperature: float

    def respond(self, request) -> Completion:
        pressing = self.temperature == 0 or np.random.default_rng(request.seed).random() < 2 / 3
        ids = self.tokenizer.encode_response(PRESS if pressing else "I would rather not.")
        zeros = np.zeros(len(ids), np.int32)
        return Completion(ids, zeros.astype(np.float32), zeros, "stop")


class FakeStage:
    """A Stage of those, with neither browser nor device."""

    def __init__(self, cfg: RunConfig, tokenizer, suite: Pages, usage: Usage | None) -> None:
        self._cfg, self._tokenizer, self.suite, self.usage = cfg, tokenizer, suite, usage

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def episode_config(self, max_turns, evaluation) -> EpisodeConfig:
        assert evaluation
        return EpisodeConfig(self._tokenizer, TEMPLATES["compact"], True, max_turns, 500, 60.0)

    def policy_agent(self, evaluation) -> Presser:
        assert evaluation
        return Presser(self._tokenizer, self._cfg.eval.temperature)

    def run(self, jobs, on_episode=lambda episode: None):
        return Collector(self.suite, max_concurrent_episodes=3, infra_retries=1).run_jobs(
            jobs, on_episode
        )


@pytest.fixture
def run(tokenizer, monkeypatch):
    """Evaluates with the options of `EvalConfig`; returns eval.json."""

    def evaluated(folder: Path, *, suite=None, progress=None, usage=None, name="miniwob", **told):
        pages = suite or Pages()
        monkeypatch.setattr(evaluate, "initial_policy", lambda cfg: (None, None))
        monkeypatch.setattr(
            evaluate, "RolloutRuntime", lambda cfg, *_: FakeStage(cfg, tokenizer, pages, usage)
        )
        monkeypatch.setattr(evaluate.html, "write_report", lambda workdir: None)
        options = {"seeds_per_task": 4, "max_turns": (6,), **told}
        cfg = RunConfig(suite=SuiteConfig(name=name), eval=EvalConfig(**options))
        evaluate.evaluate(cfg, folder, progress)
        return json.loads((folder / "eval.json").read_text())

    return evaluated


def untimed(record):
    """An eval.json without what depends on how fast the machine was."""
    tasks = [{k: v for k, v in task.items() if k != "seconds"} for task in record["tasks"]]
    return {k: v for k, v in record.items() if k not in TIMES} | {"tasks": tasks}


def journal(folder: Path):
    return load_episodes(folder / "episodes" / "episodes.jsonl")


# --- what is played ------------------------------------------------------------------------------


def test_every_world_is_played_and_counted_once(run, tmp_path):
    record = run(tmp_path)
    assert (record["n"], record["success_rate"]) == (8, 1.0)
    assert [t["task_id"] for t in record["tasks"]] == [
        f"fake/test/{page}/{world}" for world in range(4) for page in "ab"
    ]
    assert [t["turns"] for t in record["tasks"]] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert record["turns"] == {"mean": 2.5, "p50": 2.5, "p90": 4.0, "max": 4.0}
    assert record["by_site"]["a"] | {"ci95": 0} == {"success_rate": 1.0, "n": 4, "ci95": 0}
    assert {"pass_at_k", "by_max_turns", "usage"}.isdisjoint(record)
    assert [bool(e.final_screenshot) for e in journal(tmp_path)].count(True) == 2


def test_the_split_is_the_configs(run, tmp_path):
    record = run(tmp_path, split="train", seeds_per_task=1)
    assert [t["task_id"] for t in record["tasks"]] == ["fake/train/a/0", "fake/train/b/0"]


@pytest.mark.parametrize("name", ["arena", "webarena_lite"])
def test_tasks_of_a_file_have_one_world(run, tmp_path, monkeypatch, name):
    assert run(tmp_path, name=name, seeds_per_task=4)["n"] == 2


def test_more_worlds_than_there_are_are_refused(run, tmp_path):
    with pytest.raises(ConfigError, match=r"seeds_per_task=11 must be at most 10"):
        run(tmp_path, seeds_per_task=11)


def test_no_task_is_no_evaluation(run, tmp_path):
    with pytest.raises(ConfigError, match=r"suite\.tasks names no task of the test split"):
        run(tmp_path, suite=Pages(names=()))


def test_how_a_task_is_sampled_does_not_depend_on_the_others(run, tmp_path):
    whole = run(tmp_path / "whole", temperature=1.0)
    part = run(tmp_path / "part", temperature=1.0, suite=Pages(names=("b",)))
    of_b = [t for t in untimed(whole)["tasks"] if t["site"] == "b"]
    assert of_b == untimed(part)["tasks"]
    assert len({t["turns"] for t in of_b}) > 1


def test_attempts_differ_and_tell_pass_at_k(run, tmp_path):
    record = run(tmp_path, attempts=4, temperature=1.0, max_turns=(3,))
    assert record["attempts"] == 4 and len(record["tasks"]) == record["n"] == 32
    assert [t["attempt"] for t in record["tasks"]] == [0, 1, 2, 3] * 8
    rates = {k: entry["rate"] for k, entry in record["pass_at_k"].items()}
    assert list(rates) == ["1", "2", "3", "4"]
    assert 0 < rates["1"] < rates["2"] < rates["3"] < rates["4"]
    assert rates["1"] == pytest.approx(record["success_rate"])
    solved = {}
    for task in record["tasks"]:
        solved.setdefault(task["task_id"], []).append(task["reward"])
    assert rates["4"] == pytest.approx(np.mean([max(rewards) for rewards in solved.values()]))
    low, high = record["ci95"]
    assert low < record["success_rate"] < high
    unread, turns = (sum(t[key] for t in record["tasks"]) for key in ("parse_errors", "turns"))
    assert 0 < record["parse_error_rate"] == unread / turns < 1


def test_shorter_limits_are_read_off_the_longest(run, tmp_path):
    told = {"temperature": 1.0, "seeds_per_task": 6}
    record = run(tmp_path / "all", max_turns=(3, 8, 2, 5), **told)
    points = record["by_max_turns"]
    assert [point["max_turns"] for point in points] == [2, 3, 5, 8]
    for point in points:
        alone = run(tmp_path / str(point["max_turns"]), max_turns=(point["max_turns"],), **told)
        assert {k: alone[k] for k in ("success_rate", "n", "ci95")} == {
            k: point[k] for k in ("success_rate", "n", "ci95")
        }
    assert points[0]["success_rate"] < points[-1]["success_rate"] == record["success_rate"]


# --- what is spoilt ------------------------------------------------------------------------------


def test_faults_are_played_again_at_the_end_and_leave_no_trace(run, tmp_path):
    spoilt = Pages({"fake/test/a/1": 3})  # try, retry, and the try of the last round
    record = run(tmp_path, suite=spoilt)
    assert record["infra"] == [] and record["n"] == 8
    assert spoilt.faults["fake/test/a/1"] == -1
    assert len(journal(tmp_path)) == 8


def test_what_stays_without_reward_is_reported_apart_and_played_by_the_next_start(run, tmp_path):
    record = run(tmp_path, suite=Pages({"fake/test/a/1": 99}))
    assert record["infra"] == [
        {"task_id": "fake/test/a/1", "attempt": 0, "infra_error": "the browser is gone"}
    ]
    assert (record["n"], record["success_rate"]) == (7, 1.0)
    assert record["by_outcome"] == {"SUCCESS": 7, "INFRA": 1}
    assert record["tasks"][2]["reward"] is None
    mended = run(tmp_path)
    assert (mended["n"], mended["infra"]) == (8, [])
    assert untimed(mended) == untimed(run(tmp_path / "whole"))


# --- kills ---------------------------------------------------------------------------------------


class _Killed(Exception):
    pass


class KilledAfter(NullProgress):
    """Stands for a kill, after so many episodes of this start."""

    def __init__(self, episodes: int) -> None:
        self._left = episodes

    def advance(self, n=1, **counts) -> None:
        self._left -= 1
        if self._left == 0:
            raise _Killed


def test_three_kills_change_nothing(run, tmp_path):
    whole = run(tmp_path / "whole", max_turns=(2, 6), seeds_per_task=6)
    cut = tmp_path / "cut"
    for episodes in (1, 3, 4):
        with pytest.raises(_Killed):
            run(cut, progress=KilledAfter(episodes), max_turns=(2, 6), seeds_per_task=6)
        log = cut / "episodes" / "episodes.jsonl"
        log.write_text(log.read_text() + '{"task": {"id": "half a li')
    assert len(journal(cut)) == 8
    resumed = run(cut, max_turns=(2, 6), seeds_per_task=6)
    assert untimed(resumed) == untimed(whole)
    keys = [(e.task.id, e.attempt) for e in journal(cut)]
    assert len(keys) == len(set(keys)) == 12


def test_time_and_usage_add_up_over_starts(run, tmp_path):
    spent = Usage(replies=3, prompt_tokens=100, completion_tokens=10, dollars=0.5)
    with pytest.raises(_Killed):
        run(tmp_path, progress=KilledAfter(2), usage=spent)
    ledger = tmp_path / "episodes" / "spent.json"
    first = json.loads(ledger.read_text())
    assert 0 < first["engine"] <= first["seconds"]
    ledger.write_text(json.dumps(first | {"seconds": 1000.0}))
    record = run(tmp_path, usage=spent)
    assert 1000 < record["seconds"] < 1100
    assert (record["usage"]["prompt_tokens"], record["usage"]["dollars"]) == (200, 1.0)


def test_a_price_that_is_not_known_once_is_not_known(run, tmp_path):
    with pytest.raises(_Killed):
        run(tmp_path, progress=KilledAfter(2), usage=Usage(dollars=0.5))
    assert run(tmp_path, usage=Usage())["usage"]["dollars"] is None


def test_a_finished_evaluation_is_left_alone(run, tmp_path, monkeypatch):
    record = run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert run(tmp_path, suite=Pages({"fake/test/a/1": 99})) == record
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_an_evaluation_whose_episodes_are_gone_is_played_again(run, tmp_path):
    record = run(tmp_path)
    (tmp_path / "episodes" / "episodes.jsonl").unlink()
    assert untimed(run(tmp_path)) == untimed(record)
    assert len(journal(tmp_path)) == 8


# --- options -------------------------------------------------------------------------------------


@pytest.fixture
def from_flags(monkeypatch):
    """The config of a launcher that is told one flag."""

    def parsed(flag: str) -> RunConfig:
        monkeypatch.setattr(sys, "argv", ["launcher", flag])  # where overrides are looked for
        values = flags.FlagValues()
        config_flags.DEFINE_config_file(
            "config", str(ROOT / "configs" / "quickstart.py"), flag_values=values, lock_config=True
        )
        values(sys.argv)
        return config.from_config_dict(values.config)

    return parsed


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("5,10,15,20,25,30", (5, 10, 15, 20, 25, 30)),
        ("30", (30,)),
        ("(5, 10)", (5, 10)),
    ],
)
def test_turn_limits_come_through_flags(from_flags, told, expected):
    assert from_flags(f"--config.eval.max_turns={told}").eval.max_turns == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("click-tab", ("click-tab",)),
        ("click-tab,enter-text", ("click-tab", "enter-text")),
        ("shop/buy/3,shop", ("shop/buy/3", "shop")),
        ("7", ("7",)),
        ("7,12", ("7", "12")),
        ("", ()),
    ],
)
def test_task_names_come_through_flags(from_flags, told, expected):
    assert from_flags(f"--config.suite.tasks={told}").suite.tasks == expected


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"max_turns": ()}, r"eval\.max_turns must list"),
        ({"max_turns": (5, 0)}, r"eval\.max_turns must list"),
        ({"attempts": 0}, r"eval\.attempts must be at least 1"),
        ({"attempts": 2}, "greedy attempts are identical"),
        ({"seeds_per_task": 0}, r"eval\.seeds_per_task must be at least 1"),
        ({"top_p": 0.0}, r"eval\.top_p must be above 0 and at most 1"),
        ({"top_k": -1}, r"eval\.top_k must not be negative"),
        ({"max_new_tokens": 1024}, r"eval\.max_new_tokens must be below engine\.max_model_len"),
        ({"max_repeats": 1}, r"eval\.max_repeats must be at least 2, or 0"),
    ],
)
def test_impossible_options_are_refused(told, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(eval=EvalConfig(**told))


# --- the launchers -------------------------------------------------------------------------------


def test_a_policy_that_is_not_there_is_one_line_and_no_traceback(tmp_path):
    command = [sys.executable, str(ROOT / "launch/evaluate.py"), "--config=configs/quickstart.py"]
    result = subprocess.run(
        [*command, f"--config.policy.path={tmp_path}", f"--workdir={tmp_path / 'run'}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert f"no policy at {tmp_path}: expected a Hugging Face directory" in result.stderr


def launch(folder: Path, compare: str = "") -> None:
    from launch import evaluate as launcher

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    cfg = config.to_config_dict(RunConfig(eval=EvalConfig(seeds_per_task=4, max_turns=(6,))))
    with flagsaver.flagsaver(config=cfg, workdir=str(folder), compare=compare):
        launcher.main(["evaluate"])


def test_the_launcher_prints_the_figures_and_ends_well(run, tmp_path, capsys):
    run(tmp_path)
    launch(tmp_path)
    told = capsys.readouterr().out
    assert re.search(r"^all +100\.0 +67\.6 to 100\.0 +8$", told, re.MULTILINE)
    assert "8 SUCCESS" in told and "utilization: browsers" in told and "INFRA" not in told


def test_the_launcher_is_loud_about_episodes_without_a_reward(run, tmp_path, capsys):
    run(tmp_path, suite=Pages({"fake/test/a/1": 99}))
    with pytest.raises(SystemExit) as ended:
        launch(tmp_path)
    assert "INFRA: 1 of 8 episodes have no reward" in str(ended.value.code)
    assert "fake/test/a/1: the browser is gone" in str(ended.value.code)
    assert re.search(r"^all +100\.0 +64\.6 to 100\.0 +7$", capsys.readouterr().out, re.MULTILINE)


def test_the_launcher_compares(run, tmp_path, capsys):
    run(tmp_path / "other", max_turns=(3,))
    run(tmp_path / "this")
    launch(tmp_path / "this", compare=str(tmp_path / "other"))
    told = capsys.readouterr().out
    assert "+25.0 points" in told and "over 8 paired tasks" in told
    assert "solved now: 2 (fake/test/a/3, fake/test/b/3)" in told
    written = json.loads((tmp_path / "this" / "comparison.json").read_text())
    assert written["gained"] == ["fake/test/a/3", "fake/test/b/3"] and written["lost"] == []


def test_nothing_is_played_where_there_is_nothing_to_compare_with(run, tmp_path):
    with pytest.raises(SystemExit, match="contains no evaluation"):
        launch(tmp_path / "this", compare=str(tmp_path / "nowhere"))
    assert not (tmp_path / "this").exists()


# --- the real thing ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_a_real_evaluation_killed_three_times_is_the_uninterrupted_one(tmp_path):
    """SIGKILL at random moments, each time with more episodes on disk."""
    clock = random.Random(os.urandom(8))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    with started(whole) as process:
        assert process.wait(600) == 0
    for _ in range(3):
        before = len(journal(cut))
        with started(cut) as process:
            while len(journal(cut)) == before and process.poll() is None:
                time.sleep(0.05)
            time.sleep(clock.uniform(0.0, 0.5))
    assert not (cut / "eval.json").exists(), "it was over before it was killed: play more episodes"
    with started(cut) as process:
        assert process.wait(600) == 0
    records = [json.loads((folder / "eval.json").read_text()) for folder in (whole, cut)]
    assert untimed(records[0]) == untimed(records[1])
    keys = [(e.task.id, e.attempt) for e in journal(cut)]
    assert len(keys) == len(set(keys)) == records[1]["n"] == 24


@contextmanager
def started(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The launcher in a process group of its own, which is killed in the end."""
    options = (
        "suite.tasks=click-tab,click-option,enter-text",
        "eval.seeds_per_task=8",
        "eval.temperature=0.0",
        "eval.max_turns=2,4",
        "rollout.max_concurrent_episodes=4",
        "rollout.episode_timeout=300.0",
    )
    process = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "launch" / "evaluate.py"),
            f"--config={ROOT / 'configs' / 'quickstart.py'}",
            f"--workdir={folder}",
            *(f"--config.{option}" for option in options),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
