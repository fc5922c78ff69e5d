"""Tests of evaluations: episodes, statistics, resumption after kills, and the launcher."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import re
import shutil
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

from configs import quickstart
from webagent_jax import config, evaluate, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import ConfigError, EvalConfig, PolicyConfig, RunConfig, SuiteConfig
from webagent_jax.endpoint import Usage
from webagent_jax.report import tables
from webagent_jax.rollout import Collector, EpisodeConfig
from webagent_jax.tracking.episode_log import load_episodes
from webagent_jax.tracking.progress import LineProgress, NullProgress
from webagent_jax.types import Completion, InfraError, Observation, ResetResult, StepResult, Task

ROOT = Path(__file__).parents[1]
PRESS = '<answer> do(action="Click", element="1") </answer>'
TIMING_KEYS = ("seconds", "episode_seconds", "utilization")  # keys of eval.json


# --- fakes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


class FakeEnv:
    """Environment that is solved by `task.seed + 1` presses."""

    def __init__(self, task: Task, is_faulty: bool) -> None:
        self._presses, self._is_faulty = task.seed + 1, is_faulty

    def _observation(self, error: str | None = None) -> Observation:
        return Observation("button go [1]", "http://fake/", error=error)

    def reset(self) -> ResetResult:
        return ResetResult("Press it", self._observation(), {})

    def step(self, action) -> StepResult:
        if self._is_faulty:
            raise InfraError("the browser is gone")
        self._presses -= action.element_id == "1"
        return StepResult(self._observation(), terminated=self._presses == 0, seconds={})

    def compute_reward(self, answer) -> float:
        return float(self._presses == 0)

    def screenshot(self) -> bytes:
        return b"jpeg"

    def close(self) -> None:
        pass


class FakeSuite:
    """Suite of two pages with ten seeds each. `faults`: number of runs of a task that fail."""

    def __init__(self, faults: dict[str, int] | None = None, names=("a", "b")) -> None:
        self.faults = Counter(faults)
        self._names = names

    def task_names(self, split):
        return self._names

    def task(self, name, split, index):
        return Task(f"fake/{split}/{name}/{index}", "fake", (name,), "", "", range(10)[index])

    def make_env(self, task):
        self.faults[task.id] -= 1
        return FakeEnv(task, is_faulty=self.faults[task.id] >= 0)


@dataclasses.dataclass
class FakeAgent:
    """Agent that presses; when sampling, only in a random two thirds of the turns."""

    tokenizer: ChatTokenizer
    temperature: float

    def respond(self, request) -> Completion:
        is_press = self.temperature == 0 or np.random.default_rng(request.seed).random() < 2 / 3
        ids = self.tokenizer.encode_response(PRESS if is_press else "I would rather not.")
        zeros = np.zeros(len(ids), np.int32)
        return Completion(ids, zeros.astype(np.float32), zeros, "stop")


class FakeRuntime:
    """Substitute for `RolloutRuntime` without a browser or device."""

    def __init__(
        self, cfg: RunConfig, tokenizer, suite: FakeSuite, usage: Usage | None, limit: int
    ) -> None:
        self._cfg, self._tokenizer, self.suite, self.usage = cfg, tokenizer, suite, usage
        self._limit = limit  # maximum tokens of a prompt

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def episode_config(self, max_turns, evaluation) -> EpisodeConfig:
        assert evaluation
        return EpisodeConfig(
            self._tokenizer, PromptFormat(TEMPLATES["compact"]), max_turns, self._limit, 60.0
        )

    def policy_agent(self, evaluation) -> FakeAgent:
        assert evaluation
        return FakeAgent(self._tokenizer, self._cfg.eval.temperature)

    def run(self, jobs, on_episode=lambda episode: None):
        return Collector(self.suite, max_concurrent_episodes=3, infra_retries=1).run_jobs(
            jobs, on_episode
        )


@pytest.fixture
def run(tokenizer, monkeypatch):
    """Function that evaluates with options of `EvalConfig` and returns eval.json."""

    def run_evaluation(
        folder: Path,
        *,
        suite=None,
        progress=None,
        usage=None,
        name="miniwob",
        policy="webagent-tiny",
        max_prompt_tokens=500,
        **eval_options,
    ):
        fake_suite = suite or FakeSuite()
        monkeypatch.setattr(evaluate, "initial_policy", lambda cfg: (None, None))
        monkeypatch.setattr(
            evaluate,
            "RolloutRuntime",
            lambda cfg, *_: FakeRuntime(cfg, tokenizer, fake_suite, usage, max_prompt_tokens),
        )
        monkeypatch.setattr(evaluate.html, "write_report", lambda workdir: None)
        options = {"seeds_per_task": 4, "max_turns": (6,), **eval_options}
        cfg = RunConfig(
            policy=PolicyConfig(path=policy),
            suite=SuiteConfig(name=name),
            eval=EvalConfig(**options),
        )
        evaluate.evaluate(cfg, folder, progress)
        return json.loads((folder / "eval.json").read_text())

    return run_evaluation


def without_timings(record):
    """Return the record without timings."""
    tasks = [{k: v for k, v in task.items() if k != "seconds"} for task in record["tasks"]]
    return {k: v for k, v in record.items() if k not in TIMING_KEYS} | {"tasks": tasks}


def load_journal(folder: Path):
    return load_episodes(folder / "episodes" / "episodes.jsonl")


# --- episodes and statistics ---------------------------------------------------------------------


def test_evaluation_runs_every_task_once(run, tmp_path):
    record = run(tmp_path)
    assert (record["n"], record["success_rate"]) == (8, 1.0)
    assert [t["task_id"] for t in record["tasks"]] == [
        f"fake/test/{page}/{world}" for world in range(4) for page in "ab"
    ]
    assert [t["turns"] for t in record["tasks"]] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert record["turns"] == {"mean": 2.5, "p50": 2.5, "p90": 4.0, "max": 4.0}
    assert record["by_site"]["a"] | {"ci95": 0} == {"success_rate": 1.0, "n": 4, "ci95": 0}
    assert {"pass_at_k", "by_max_turns", "usage"}.isdisjoint(record)
    assert [bool(e.final_screenshot) for e in load_journal(tmp_path)].count(True) == 2


def test_evaluation_uses_configured_split(run, tmp_path):
    record = run(tmp_path, split="train", seeds_per_task=1)
    assert [t["task_id"] for t in record["tasks"]] == ["fake/train/a/0", "fake/train/b/0"]


@pytest.mark.parametrize("name", ["arena", "infinity", "webarena_lite"])
def test_task_file_suites_use_one_seed_per_task(run, tmp_path, monkeypatch, name):
    assert run(tmp_path, name=name, seeds_per_task=4)["n"] == 2


def test_seeds_per_task_above_maximum_is_rejected(run, tmp_path):
    with pytest.raises(ConfigError, match=r"seeds_per_task=11 must be at most 10"):
        run(tmp_path, seeds_per_task=11)


def test_evaluation_without_tasks_is_rejected(run, tmp_path):
    with pytest.raises(ConfigError, match=r"the test split has no task"):
        run(tmp_path, suite=FakeSuite(names=()))


def test_sampling_is_independent_of_other_tasks(run, tmp_path):
    full_record = run(tmp_path / "whole", temperature=1.0)
    part_record = run(tmp_path / "part", temperature=1.0, suite=FakeSuite(names=("b",)))
    b_tasks = [task for task in without_timings(full_record)["tasks"] if task["site"] == "b"]
    assert b_tasks == without_timings(part_record)["tasks"]
    assert len({task["turns"] for task in b_tasks}) > 1


def test_attempts_differ_and_determine_pass_at_k(run, tmp_path):
    record = run(tmp_path, attempts=4, temperature=1.0, max_turns=(3,))
    assert record["attempts"] == 4 and len(record["tasks"]) == record["n"] == 32
    assert [t["attempt"] for t in record["tasks"]] == [0, 1, 2, 3] * 8
    rates = {k: entry["rate"] for k, entry in record["pass_at_k"].items()}
    assert list(rates) == ["1", "2", "3", "4"]
    assert 0 < rates["1"] < rates["2"] < rates["3"] < rates["4"]
    assert rates["1"] == pytest.approx(record["success_rate"])
    rewards_by_task = {}
    for task in record["tasks"]:
        rewards_by_task.setdefault(task["task_id"], []).append(task["reward"])
    assert rates["4"] == pytest.approx(
        np.mean([max(rewards) for rewards in rewards_by_task.values()])
    )
    low, high = record["ci95"]
    assert low < record["success_rate"] < high
    num_parse_errors, num_turns = (
        sum(t[key] for t in record["tasks"]) for key in ("parse_errors", "turns")
    )
    assert 0 < record["parse_error_rate"] == num_parse_errors / num_turns < 1


def test_pass_at_k_reports_number_of_tasks(run, tmp_path):
    # The last attempts at one task have no reward.
    suite = FakeSuite()
    record = run(tmp_path, suite=suite, attempts=3, temperature=1.0)
    assert [entry["n"] for entry in record["pass_at_k"].values()] == [8, 8, 8]
    assert "tasks" not in tables.evaluation(record)
    log = tmp_path / "episodes" / "episodes.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [e for e in lines if e["task"]["id"] != "fake/test/a/1" or e["attempt"] == 0]
    log.write_text("".join(json.dumps(episode) + "\n" for episode in kept))
    record = run(tmp_path, suite=FakeSuite({"fake/test/a/1": 99}), attempts=3, temperature=1.0)
    assert [entry["n"] for entry in record["pass_at_k"].values()] == [8, 7, 7]
    output = tables.evaluation(record)
    assert re.search(r"^k = 1 +\d", output, re.MULTILINE)
    assert re.search(r"^k = 2, 7 of 8 tasks +\d", output, re.MULTILINE)
    # Evaluations of earlier versions lack the number.
    for entry in record["pass_at_k"].values():
        del entry["n"]
    assert "of 8 tasks" not in tables.evaluation(record)


def test_success_by_max_turns_matches_separate_runs(run, tmp_path):
    options = {"temperature": 1.0, "seeds_per_task": 6}
    record = run(tmp_path / "all", max_turns=(3, 8, 2, 5), **options)
    points = record["by_max_turns"]
    assert [point["max_turns"] for point in points] == [2, 3, 5, 8]
    for point in points:
        separate_record = run(
            tmp_path / str(point["max_turns"]), max_turns=(point["max_turns"],), **options
        )
        assert {k: separate_record[k] for k in ("success_rate", "n", "ci95")} == {
            k: point[k] for k in ("success_rate", "n", "ci95")
        }
    assert points[0]["success_rate"] < points[-1]["success_rate"] == record["success_rate"]


def test_long_first_prompts_of_all_episodes_are_an_error(run, tmp_path):
    # The second call finds a complete evaluation.
    for _ in range(2):
        with pytest.raises(ConfigError, match="in 8 of 8 episodes the first prompt was too long"):
            run(tmp_path, max_prompt_tokens=3)
    assert json.loads((tmp_path / "eval.json").read_text())["n"] == 8


# --- infrastructure errors -----------------------------------------------------------------------


def test_infra_errors_are_retried_at_end(run, tmp_path):
    suite = FakeSuite({"fake/test/a/1": 3})  # run, retry, and the run of the last round
    record = run(tmp_path, suite=suite)
    assert record["infra"] == [] and record["n"] == 8
    assert suite.faults["fake/test/a/1"] == -1
    assert len(load_journal(tmp_path)) == 8


def test_infra_errors_are_reported_and_retried_on_restart(run, tmp_path):
    record = run(tmp_path, suite=FakeSuite({"fake/test/a/1": 99}))
    assert record["infra"] == [
        {"task_id": "fake/test/a/1", "attempt": 0, "infra_error": "the browser is gone"}
    ]
    assert (record["n"], record["success_rate"]) == (7, 1.0)
    assert record["by_outcome"] == {"SUCCESS": 7, "INFRA": 1}
    assert record["tasks"][2]["reward"] is None
    second_record = run(tmp_path)
    assert (second_record["n"], second_record["infra"]) == (8, [])
    assert without_timings(second_record) == without_timings(run(tmp_path / "whole"))


def test_evaluation_without_scored_episode_has_no_rate(run, tmp_path):
    suite = FakeSuite(dict.fromkeys([f"fake/test/{name}/0" for name in "ab"], 99))
    options = {"seeds_per_task": 1, "attempts": 2, "temperature": 1.0, "max_turns": (3, 6)}
    record = run(tmp_path, suite=suite, **options)
    assert (record["n"], record["success_rate"], record["by_site"]) == (0, None, {})
    assert [point["rate"] for point in record["pass_at_k"].values()] == [None, None]
    assert [point["success_rate"] for point in record["by_max_turns"]] == [None, None]
    output = tables.evaluation(record)
    assert re.search(r"^all +- +0\.0 to 100\.0 +0$", output, re.MULTILINE)
    assert re.search(r"^up to 3 +- ", output, re.MULTILINE)


# --- kills ---------------------------------------------------------------------------------------


class _SimulatedKill(Exception):
    pass


class KillingProgress(NullProgress):
    """Progress that simulates a kill after `episodes` episodes of this start."""

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes

    def advance(self, n=1, **counts) -> None:
        self._episodes -= n
        if self._episodes == 0:
            raise _SimulatedKill


def test_result_is_unchanged_after_three_kills(run, tmp_path):
    full_record = run(tmp_path / "whole", max_turns=(2, 6), seeds_per_task=6)
    killed_dir = tmp_path / "cut"
    for episodes in (1, 3, 4):
        with pytest.raises(_SimulatedKill):
            run(killed_dir, progress=KillingProgress(episodes), max_turns=(2, 6), seeds_per_task=6)
        log = killed_dir / "episodes" / "episodes.jsonl"
        log.write_text(log.read_text() + '{"task": {"id": "half a li')
    assert len(load_journal(killed_dir)) == 8
    resumed_record = run(killed_dir, max_turns=(2, 6), seeds_per_task=6)
    assert without_timings(resumed_record) == without_timings(full_record)
    keys = [(episode.task.id, episode.attempt) for episode in load_journal(killed_dir)]
    assert len(keys) == len(set(keys)) == 12


def test_success_rate_of_progress_includes_earlier_episodes(run, tmp_path):
    with pytest.raises(_SimulatedKill):
        run(tmp_path, progress=KillingProgress(5))
    stream = io.StringIO()
    with LineProgress(stream) as progress:
        run(tmp_path, progress=progress)
    assert "100.0% success" in stream.getvalue()


def test_seconds_and_usage_accumulate_across_restarts(run, tmp_path):
    usage = Usage(responses=3, prompt_tokens=100, completion_tokens=10, dollars=0.5)
    with pytest.raises(_SimulatedKill):
        run(tmp_path, progress=KillingProgress(2), usage=usage)
    ledger_path = tmp_path / "episodes" / "spent.json"
    ledger = json.loads(ledger_path.read_text())
    assert 0 < ledger["engine"] <= ledger["seconds"]
    ledger_path.write_text(json.dumps(ledger | {"seconds": 1000.0}))
    record = run(tmp_path, usage=usage)
    assert record["seconds"] > 1000
    assert (record["usage"]["prompt_tokens"], record["usage"]["dollars"]) == (200, 1.0)


def test_usage_of_unfinished_episodes_is_recorded(run, tmp_path):
    class InterruptedSuite(FakeSuite):
        """Suite whose first episode is interrupted by Ctrl-C."""

        def make_env(self, task):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, suite=InterruptedSuite(), usage=Usage(responses=3, prompt_tokens=100))
    ledger = json.loads((tmp_path / "episodes" / "spent.json").read_text())
    assert ledger["usage"]["prompt_tokens"] == 100


def test_start_without_response_does_not_occupy_workdir(run, tmp_path):
    """The endpoint rejects the first request, for example because its model does not exist."""

    class RejectedSuite(FakeSuite):
        """Suite whose first episode ends the run."""

        def make_env(self, task):
            raise ConfigError("the endpoint has no such model")

    with pytest.raises(ConfigError, match="no such model"):
        run(tmp_path, suite=RejectedSuite(), usage=Usage(failed_requests=1))
    assert not (tmp_path / "episodes" / "spent.json").exists()
    assert run(tmp_path, temperature=0.5, usage=Usage())["n"] == 8


def test_total_price_is_unknown_if_one_price_is_unknown(run, tmp_path):
    with pytest.raises(_SimulatedKill):
        run(tmp_path, progress=KillingProgress(2), usage=Usage(dollars=0.5))
    assert run(tmp_path, usage=Usage())["usage"]["dollars"] is None


def test_finished_evaluation_is_not_rerun(run, tmp_path, monkeypatch):
    record = run(tmp_path)
    mtimes = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert run(tmp_path, suite=FakeSuite({"fake/test/a/1": 99})) == record
    final_mtimes = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert final_mtimes == mtimes


def test_evaluation_rejects_changed_policy(run, tmp_path):
    path = tmp_path / "policy"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), path)
    with suppress(_SimulatedKill):
        run(tmp_path / "eval", progress=KillingProgress(2), policy=str(path))
    moved = path.rename(tmp_path / "moved")
    shutil.copytree(moved, path)
    # The same files at the same path.
    run(tmp_path / "eval", policy=str(path))
    with (path / "model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\1\2\3\4")
    with pytest.raises(ConfigError, match="has changed since\nthis evaluation began"):
        run(tmp_path / "eval", policy=str(path))


def test_evaluation_without_episodes_takes_other_policy(run, tmp_path):
    path = tmp_path / "policy"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), path)
    with pytest.raises(ConfigError, match="must be at most 10"):
        run(tmp_path / "eval", policy=str(path), seeds_per_task=11)
    assert (tmp_path / "eval" / "policy.json").exists()
    with (path / "model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\1\2\3\4")
    assert run(tmp_path / "eval", policy=str(path))["n"] == 8


class TaskFileSuite(FakeSuite):
    """Suite whose tasks have an intent and an evaluator."""

    def __init__(self, intent: str = "Press it", answer: str = "1") -> None:
        super().__init__()
        self._intent, self._answer = intent, answer

    def task(self, name, split, index):
        spec = {"eval_types": ("string_match",), "answer": self._answer}
        return dataclasses.replace(super().task(name, split, index), intent=self._intent, eval=spec)


@pytest.mark.parametrize("change", [{"intent": "Press it twice"}, {"answer": "2"}])
def test_interrupted_evaluation_rejects_changed_tasks(run, tmp_path, change):
    for folder in ("same", "changed"):
        with pytest.raises(_SimulatedKill):
            run(tmp_path / folder, suite=TaskFileSuite(), progress=KillingProgress(2))
    assert run(tmp_path / "same", suite=TaskFileSuite())["n"] == 8
    with pytest.raises(ConfigError, match="with another intent or eval: the task has changed"):
        run(tmp_path / "changed", suite=TaskFileSuite(**change))


def test_evaluation_without_episode_log_is_rerun(run, tmp_path):
    record = run(tmp_path)
    (tmp_path / "episodes" / "episodes.jsonl").unlink()
    assert without_timings(run(tmp_path)) == without_timings(record)
    assert len(load_journal(tmp_path)) == 8


# --- options -------------------------------------------------------------------------------------


@pytest.fixture
def config_from_flag(monkeypatch):
    """Function that returns the config of a launcher with one flag."""

    def parse(flag: str) -> RunConfig:
        monkeypatch.setattr(sys, "argv", ["launcher", flag])  # config_flags reads overrides here
        values = flags.FlagValues()
        default = config.to_config_dict(quickstart.get_config())
        config_flags.DEFINE_config_dict("config", default, flag_values=values)
        values(sys.argv)
        return config.from_config_dict(values.config)

    return parse


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5,10,15,20,25,30", (5, 10, 15, 20, 25, 30)),
        ("30", (30,)),
        ("(5, 10)", (5, 10)),
    ],
)
def test_max_turns_flag_is_parsed(config_from_flag, value, expected):
    assert config_from_flag(f"--config.eval.max_turns={value}").eval.max_turns == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("click-tab", ("click-tab",)),
        ("click-tab,enter-text", ("click-tab", "enter-text")),
        ("shop/buy/3,shop", ("shop/buy/3", "shop")),
        ("7", ("7",)),
        ("7,12", ("7", "12")),
        ("", ()),
    ],
)
def test_tasks_flag_is_parsed(config_from_flag, value, expected):
    assert config_from_flag(f"--config.suite.tasks={value}").suite.tasks == expected


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_invalid_eval_options_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(eval=EvalConfig(**options))


# --- the launcher --------------------------------------------------------------------------------


def test_missing_policy_exits_without_traceback(tmp_path):
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
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert f"no policy at {tmp_path}: expected a Hugging Face directory" in result.stderr


def launch(folder: Path, compare: str = "") -> None:
    from webagent_jax.commands import evaluate as launcher

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    cfg = config.to_config_dict(RunConfig(eval=EvalConfig(seeds_per_task=4, max_turns=(6,))))
    with flagsaver.flagsaver(config=cfg, workdir=str(folder), compare=compare):
        launcher.main(["evaluate"])


def test_launcher_prints_success_table(run, tmp_path, capsys):
    run(tmp_path)
    launch(tmp_path)
    output = capsys.readouterr().out
    assert re.search(r"^all +100\.0 +67\.6 to 100\.0 +8$", output, re.MULTILINE)
    assert "8 SUCCESS" in output and "utilization: browsers" in output and "INFRA" not in output


def test_launcher_exits_with_error_for_missing_rewards(run, tmp_path, capsys):
    run(tmp_path, suite=FakeSuite({"fake/test/a/1": 99}))
    with pytest.raises(SystemExit) as exit_info:
        launch(tmp_path)
    assert "INFRA: 1 of 8 episodes have no reward" in str(exit_info.value.code)
    assert "fake/test/a/1: the browser is gone" in str(exit_info.value.code)
    assert re.search(r"^all +100\.0 +64\.6 to 100\.0 +7$", capsys.readouterr().out, re.MULTILINE)


def test_launcher_compares_with_other_evaluation(run, tmp_path, capsys):
    run(tmp_path / "other", max_turns=(3,))
    run(tmp_path / "this")
    launch(tmp_path / "this", compare=str(tmp_path / "other"))
    output = capsys.readouterr().out
    assert "+25.0 points" in output and "over the first attempts at 8 paired tasks" in output
    assert "learned:   2 (fake/test/a/3, fake/test/b/3)" in output
    comparison = json.loads((tmp_path / "this" / "comparison.json").read_text())
    assert comparison["gained"] == ["fake/test/a/3", "fake/test/b/3"] and comparison["lost"] == []


def test_launcher_rejects_missing_comparison_before_rollouts(run, tmp_path):
    with pytest.raises(ConfigError, match="contains no evaluation"):
        launch(tmp_path / "this", compare=str(tmp_path / "nowhere"))
    assert not (tmp_path / "this").exists()


# --- real browsers -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_real_evaluation_is_unchanged_after_three_kills(tmp_path):
    """The process receives SIGKILL at random times, each time with more episodes on disk."""
    rng = random.Random(os.urandom(8))
    full_dir, killed_dir = tmp_path / "whole", tmp_path / "cut"
    with start_launcher(full_dir) as process:
        assert process.wait(600) == 0
    for _ in range(3):
        num_episodes = len(load_journal(killed_dir))
        with start_launcher(killed_dir) as process:
            while len(load_journal(killed_dir)) == num_episodes and process.poll() is None:
                time.sleep(0.05)
            time.sleep(rng.uniform(0.0, 0.5))
    assert not (killed_dir / "eval.json").exists(), (
        "the evaluation finished before the kill: run more episodes"
    )
    with start_launcher(killed_dir) as process:
        assert process.wait(600) == 0
    records = [json.loads((folder / "eval.json").read_text()) for folder in (full_dir, killed_dir)]
    assert without_timings(records[0]) == without_timings(records[1])
    keys = [(episode.task.id, episode.attempt) for episode in load_journal(killed_dir)]
    assert len(keys) == len(set(keys)) == records[1]["n"] == 24


@contextmanager
def start_launcher(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the launcher in its own process group and kill the group at exit."""
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
