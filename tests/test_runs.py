"""Tests of complete runs through the launchers, on live pages and too small to learn."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from configs import quickstart as quickstart_config
from tests.metric_records import without_timings
from tests.train.checkpoints import assert_equal_checkpoints
from tools import benchmarks
from tools.benchmarks import speculation
from webagent_jax import config, policy
from webagent_jax.config import ConfigError, GuardConfig, SuiteConfig
from webagent_jax.policy import weights
from webagent_jax.rollout import Collector
from webagent_jax.tracking import run_metadata
from webagent_jax.tracking.episode_log import load_episodes
from webagent_jax.tracking.metric_writers import read_metrics
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.train.bc import train_bc
from webagent_jax.train.grpo import train_grpo
from webagent_jax.train.metrics import GuardLimitError
from webagent_jax.train.validation import Validation
from webagent_jax.types import Outcome

# The fixture is a complete run, compilations included.
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent
SMOKE = quickstart_config.get_config("smoke")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Workdir of one run of the quickstart launcher."""
    from webagent_jax.commands import quickstart

    folder = tmp_path_factory.mktemp("runs") / "quickstart"
    _launch(quickstart, folder)
    return folder


def _launch(launcher, folder: Path, **options) -> None:
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    smoke = config.to_config_dict(dataclasses.replace(SMOKE, **options))
    with flagsaver.flagsaver(config=smoke, workdir=str(folder)):
        launcher.main(["launcher"])


def test_quickstart_writes_summary_evals_and_report(workdir):
    summary = json.loads((workdir / "summary.json").read_text())
    assert set(summary) >= {"base", "bc", "grpo", "seconds", "hardware", "grpo_minus_bc"}
    for stage in ("base", "bc", "grpo"):
        evaluation = summary[stage]
        assert evaluation["n"] == 4
        assert set(evaluation["by_site"]) == set(SMOKE.suite.tasks)
        assert json.loads((workdir / "eval" / stage / "eval.json").read_text()) == evaluation
        episodes = load_episodes(workdir / "eval" / stage / "episodes" / "episodes.jsonl")
        assert all(e.reward is not None and e.turns for e in episodes)
        assert any(turn.screenshot for e in episodes for turn in e.turns)
    tasks = [[task["task_id"] for task in summary[s]["tasks"]] for s in ("base", "bc", "grpo")]
    assert tasks[0] == tasks[1] == tasks[2]
    assert (workdir / "report.html").stat().st_size > 10_000
    assert len(read_metrics(workdir / "grpo" / "metrics.jsonl")) == SMOKE.grpo.updates


def test_speculation_benchmark_replays_episodes(workdir, monkeypatch):
    monkeypatch.setattr(speculation, "_NUM_EPISODES", {2: 3})
    monkeypatch.setattr(speculation, "_NUM_SPECULATIVE_TOKENS", (2,))
    options = benchmarks.Options(repeats=1, episodes=str(workdir / "grpo"))
    report = benchmarks.run("speculation", options, lambda _: None)
    for result in report["results"]:
        assert result["equal completions"] == result["completions"] >= 3
    assert report["results"][0]["tokens per slot and step"] == 1.0
    assert report["results"][1]["tokens per slot and step"] > 1.0


@pytest.mark.slow
def test_quickstart_runs_on_site_of_user(tmp_path):
    from webagent_jax.commands import quickstart

    _launch(quickstart, tmp_path, suite=SuiteConfig(factory="examples.my_site.suite:make_suite"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["grpo"]["by_site"]) == {"order", "save-name"}
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_quickstart_rerun_changes_no_logs(workdir):
    from webagent_jax.commands import quickstart

    mtimes = {p: p.stat().st_mtime_ns for p in workdir.rglob("*.jsonl")}
    assert mtimes
    _launch(quickstart, workdir)
    assert {p: p.stat().st_mtime_ns for p in workdir.rglob("*.jsonl")} == mtimes


def test_quickstart_rejects_other_config_in_workdir(workdir):
    from webagent_jax.commands import quickstart

    with pytest.raises(ConfigError, match="seed=0, this one has 5"):
        _launch(quickstart, workdir, seed=5)


def test_evaluation_resumes_after_interruption(workdir, tmp_path):
    from webagent_jax.commands import evaluate

    policy_config = dataclasses.replace(SMOKE.policy, path=str(workdir / "bc" / "policy"))
    _launch(evaluate, tmp_path / "whole", policy=policy_config)
    log = tmp_path / "whole" / "episodes" / "episodes.jsonl"
    first_line, *_ = log.read_text().splitlines(keepends=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / "eval.json").unlink()
    (tmp_path / "cut" / "episodes" / "episodes.jsonl").write_text(
        first_line + '{"task": {"id": "mini'
    )
    _launch(evaluate, tmp_path / "cut", policy=policy_config)
    results = [json.loads((tmp_path / f / "eval.json").read_text()) for f in ("whole", "cut")]
    for task in (task for result in results for task in result["tasks"]):
        task.pop("seconds")
    assert results[0]["tasks"] == results[1]["tasks"]
    episodes = load_episodes(tmp_path / "cut" / "episodes" / "episodes.jsonl")
    assert len({e.task.id for e in episodes}) == len(episodes) == 4


@pytest.fixture
def fix_validation_rates(monkeypatch):
    """Function that replaces the success rates of the next validations.

    Which update is best depends on the CPU otherwise.
    """
    measure = Validation.measure

    def fix(rates, num_episodes):
        unused = iter(rates)

        def measure_fixed_rate(validation):
            metrics = measure(validation)
            assert metrics["validation/success"] * num_episodes in range(num_episodes + 1)
            return metrics | {"validation/success": next(unused)}

        monkeypatch.setattr(Validation, "measure", measure_fixed_rate)

    return fix


def test_validated_bc_exports_policy_of_best_update(workdir, tmp_path, fix_validation_rates):
    shutil.copytree(workdir / "bc" / "demos", tmp_path / "demos")
    cfg = dataclasses.replace(
        SMOKE, bc=dataclasses.replace(SMOKE.bc, epochs=3, eval_interval=1, eval_episodes=4)
    )
    rates = [0.25, 0.75, 0.5]
    fix_validation_rates(rates, num_episodes=4)
    policy_dir = train_bc(cfg, tmp_path)
    assert [r["validation/success"] for r in read_metrics(tmp_path / "metrics.jsonl")] == rates
    params = policy.load_hf(policy_dir)[1]
    best_params = weights.restore_params(tmp_path / "best" / "2", params)
    jax.tree.map(np.testing.assert_array_equal, params, best_params)


class _SimulatedKill(Exception):
    pass


class _KillingProgress(NullProgress):
    """Progress that simulates a kill after the first update."""

    def start_phase(self, name, total, unit="episodes", *, done=0):
        self._is_grpo = name == "M-GRPO"

    def advance(self, n=1, **counts):
        if self._is_grpo and n == 1:
            raise _SimulatedKill


@pytest.fixture
def fixed_rewards(monkeypatch):
    """Let the second attempts of update 1 succeed, and all other attempts of training fail.

    The first update has a gradient then, and the second one can replay successes. Such a small
    policy hardly succeeds by itself.
    """
    run_once = Collector._run_once

    def run_with_fixed_reward(collector, job):
        episode = run_once(collector, job)
        is_validation = job.group_index < 0
        if is_validation or episode.reward is None:
            return episode
        is_success = job.update == 0 and job.attempt == 1
        outcome = Outcome.SUCCESS if is_success else Outcome.FAILURE
        return dataclasses.replace(episode, reward=float(is_success), outcome=outcome)

    monkeypatch.setattr(Collector, "_run_once", run_with_fixed_reward)


@pytest.mark.usefixtures("fixed_rewards")
@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_resumed_grpo_run_matches_uninterrupted_run(workdir, tmp_path, fix_validation_rates, rank):
    cfg = dataclasses.replace(
        SMOKE,
        # The tasks of the first update recur in the second one.
        suite=dataclasses.replace(SMOKE.suite, train_seeds_per_task=1),
        policy=dataclasses.replace(SMOKE.policy, path=str(workdir / "bc" / "policy")),
        lora=dataclasses.replace(SMOKE.lora, rank=rank),
        engine=dataclasses.replace(SMOKE.engine, quantization="int8"),
        grpo=dataclasses.replace(
            SMOKE.grpo,
            updates=2,
            minibatches=1,
            filter_groups=False,
            task_sampling="adaptive",
            success_replay=True,
            eval_interval=1,
            eval_episodes=2,
        ),
    )
    # The best update is the second one, whose policy is exported.
    rates = [0.0, 0.5]
    fix_validation_rates(rates * 2, num_episodes=2)
    full_policy_dir = train_grpo(cfg, tmp_path / "whole")
    with pytest.raises(_SimulatedKill):
        train_grpo(cfg, tmp_path / "cut", _KillingProgress())
    resumed_policy_dir = train_grpo(cfg, tmp_path / "cut")
    params = [policy.load_hf(path)[1] for path in (full_policy_dir, resumed_policy_dir)]
    jax.tree.map(np.testing.assert_array_equal, *params)
    assert_equal_checkpoints(2, tmp_path / "whole", tmp_path / "cut")
    logs = [read_metrics(tmp_path / f / "metrics.jsonl") for f in ("whole", "cut")]
    if rank == 0:  # adapters have other params than the exported policy
        best_params = weights.restore_params(tmp_path / "whole" / "best" / "2", params[0])
        jax.tree.map(np.testing.assert_array_equal, params[0], best_params)
    assert [record["validation/success"] for record in logs[0]] == rates
    assert [record["groups/replayed_fraction"] > 0 for record in logs[0]] == [False, True]
    for full_record, resumed_record in zip(*logs, strict=True):
        assert without_timings(full_record) == without_timings(resumed_record)
        assert full_record["grad_norm"] > 0
        # Quantized rollouts: the policy before the update is not the one that sampled.
        assert full_record["importance_weight"] != 1
        assert (
            0 < full_record["engine/prefill_computed_fraction"] <= 1
            and 0 < full_record["engine/slot_occupancy"] <= 1
        )
    episodes = load_episodes(tmp_path / "cut" / "episodes" / "update-00002.jsonl")
    assert all(e.outcome is not Outcome.INFRA for e in episodes)
    assert {int(v) for e in episodes for t in e.turns for v in t.completion.policy_version} == {1}


# Runs of one group per update. AWR trains on groups of failures too.
SHORT = dataclasses.replace(
    SMOKE,
    # Short responses give the rows of all updates one shape.
    rollout=dataclasses.replace(SMOKE.rollout, max_turns=1, max_new_tokens=8),
    grpo=dataclasses.replace(
        SMOKE.grpo,
        tasks_per_update=1,
        minibatches=1,
        filter_groups=False,
        advantage_estimator="exponential",
        policy_loss="logp",
        kl_beta=0.0,
    ),
)


def test_run_with_more_updates_continues_as_if_it_had_them_from_the_start(tmp_path):
    one_update, two_updates = (
        dataclasses.replace(SHORT, grpo=dataclasses.replace(SHORT.grpo, updates=updates))
        for updates in (1, 2)
    )
    whole = train_grpo(two_updates, tmp_path / "whole")
    short_params = policy.load_hf(train_grpo(one_update, tmp_path / "continued"))[1]
    continued = train_grpo(two_updates, tmp_path / "continued")
    params = [policy.load_hf(path)[1] for path in (whole, continued)]
    jax.tree.map(np.testing.assert_array_equal, *params)
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, short_params, params[1])))
    records = read_metrics(tmp_path / "continued" / "metrics.jsonl")
    assert [record["update"] for record in records] == [1, 2]
    # In the uninterrupted run, the engine has received the params of update 1.
    whole_records = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    assert whole_records[1]["sampling_logp_difference"] < 1e-4
    assert run_metadata.read_config(tmp_path / "continued").grpo.updates == 2
    with pytest.raises(ConfigError, match=r"completed 2 updates, more than grpo\.updates=1: set"):
        train_grpo(one_update, tmp_path / "continued")


def test_guard_stops_run_before_checkpoint_of_its_updates(tmp_path):
    cfg = dataclasses.replace(
        SHORT,
        guard=GuardConfig(min_entropy=1e9, patience=2),
        grpo=dataclasses.replace(SHORT.grpo, updates=3),
    )
    with pytest.raises(GuardLimitError, match="after update 2: entropy"):
        train_grpo(cfg, tmp_path)
    assert [record["update"] for record in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    # Both updates are beyond the limit, so neither has a checkpoint.
    assert not [path for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit()]
    assert not (tmp_path / "policy").exists()
