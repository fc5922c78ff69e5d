"""Tests of the start and the end of M-GRPO."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.rollout.fakes import TASK, FakeEnv, FakeSampler, FakeSuite
from tests.train.test_grpo_updates import CFG
from webagent_jax import distributed, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import (
    ConfigError,
    GRPOConfig,
    GuardConfig,
    LogConfig,
    RolloutConfig,
    RunConfig,
)
from webagent_jax.inference import EngineStats
from webagent_jax.quickstart import quickstart
from webagent_jax.rollout import Collector, EngineAgent, EpisodeConfig
from webagent_jax.tracking import metric_writers
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.train import grpo, metrics
from webagent_jax.train.grpo import train_grpo
from webagent_jax.train.metrics import GuardLimitError
from webagent_jax.train.resume import TaskStreamState
from webagent_jax.types import InfraError


class LogProgress(NullProgress):
    """Progress that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def log(self, message: str) -> None:
        self.messages.append(message)


class FakeTaskSuite(FakeSuite):
    """Suite of one task; a task name that it lacks is an error."""

    def task_names(self, split):
        return ("press",)

    def task(self, name, split, index):
        return TASK


class FakeRuntime:
    """Substitute for `RolloutRuntime`: all responses are the same answer."""

    max_concurrent_episodes = 2

    def __init__(self, cfg: RunConfig, env_factory, max_prompt_tokens: int) -> None:
        if "press" not in cfg.suite.tasks:
            raise ConfigError("suite.tasks: unknown task")
        self.tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
        self.suite = FakeTaskSuite(env_factory)
        self.engine = SimpleNamespace(stats=lambda: EngineStats(1))
        self.pool = SimpleNamespace(stats=lambda: SimpleNamespace(launches=0, crashes=0))
        self._max_prompt_tokens = max_prompt_tokens

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def episode_config(self, max_turns: int) -> EpisodeConfig:
        prompt = PromptFormat(TEMPLATES["compact"])
        return EpisodeConfig(self.tokenizer, prompt, max_turns, self._max_prompt_tokens, 60.0)

    def policy_agent(self) -> EngineAgent:
        sampler = FakeSampler(self.tokenizer, ['<answer> exit(message="no") </answer>'])
        return EngineAgent(
            sampler, self.tokenizer.stop_ids, max_new_tokens=32, temperature=1.0, timeout=60.0
        )

    def collector(self) -> Collector:
        return Collector(self.suite, max_concurrent_episodes=2, infra_retries=0)

    def engine_asleep(self):
        return nullcontext()

    def update_policy(self, snapshot) -> None:
        pass


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Function that trains two updates with a `FakeRuntime` and returns the messages."""

    def run(
        *,
        env_factory=lambda index: FakeEnv(),
        max_prompt_tokens=1000,
        tasks=("press",),
        policy_path="webagent-tiny",
        log=CFG.log,
        **grpo_options,
    ):
        monkeypatch.setattr(
            grpo, "RolloutRuntime", lambda cfg, *_: FakeRuntime(cfg, env_factory, max_prompt_tokens)
        )
        progress = LogProgress()
        cfg = replace(
            CFG,
            policy=replace(CFG.policy, path=policy_path),
            suite=replace(CFG.suite, tasks=tasks),
            grpo=replace(CFG.grpo, updates=2, **grpo_options),
            guard=GuardConfig(patience=3),
            log=log,
        )
        train_grpo(cfg, tmp_path, progress)
        return progress.messages

    return run


def test_long_first_prompts_of_all_episodes_stop_run(train, tmp_path):
    with pytest.raises(ConfigError, match=r"too long in all episodes.*engine\.max_model_len=64"):
        train(max_prompt_tokens=3)
    (record,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert record["episode/num_turns"] == 0
    assert not (tmp_path / "policy").exists()


def test_long_first_prompts_of_some_episodes_are_logged(train):
    long_page = "word " * 1000
    messages = train(env_factory=lambda i: FakeEnv(page=long_page if i % 2 else ""))
    assert any("update 1: in " in m and "the first prompt was too long" in m for m in messages)


def test_run_without_gradient_reports_unchanged_policy(train, tmp_path):
    assert any("policy/ equals the initial policy" in message for message in train())
    assert (tmp_path / "policy" / "config.json").exists()


def test_wait_for_other_processes_is_rollout_time(train, tmp_path, monkeypatch):
    """The first exchange after a batch waits for the slowest process."""
    is_early, waited_seconds = False, 0.0
    real_collect_batch, real_allgather = grpo.collect_batch, distributed.allgather

    def collect_batch(*args):
        nonlocal is_early
        batch = real_collect_batch(*args)
        is_early = True
        return batch

    def wait(value):
        nonlocal is_early, waited_seconds
        waited_seconds += 1000.0 * is_early
        is_early = False
        return value

    # A clock that advances by the wait: 1000 s are longer than all work, on any machine.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + waited_seconds)
    monkeypatch.setattr(metrics, "time", clock)
    monkeypatch.setattr(grpo, "collect_batch", collect_batch)
    monkeypatch.setattr(distributed, "barrier", wait)
    monkeypatch.setattr(distributed, "allgather", lambda value: real_allgather(wait(value)))
    train()
    for record in metric_writers.read_metrics(tmp_path / "metrics.jsonl"):
        assert record["seconds/rollout"] >= 1000.0
        assert record["seconds/update"] < 1000.0


def test_profile_covers_one_update(train, tmp_path, monkeypatch):
    events = []

    @contextmanager
    def trace(folder):
        events.append(f"start {folder}")
        yield
        events.append("stop")

    def train_on_batch(*_):
        events.append("update")
        return {}

    monkeypatch.setattr("jax.profiler.trace", trace)
    monkeypatch.setattr(grpo, "_train_on_batch", train_on_batch)
    train(log=LogConfig(profile_update=2))
    assert events == ["update", f"start {tmp_path / 'profile'}", "update", "stop"]


def test_make_scheduler_passes_options(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        grpo, "GroupScheduler", lambda *args, **options: calls.append((args, options))
    )
    monkeypatch.setattr(distributed, "process_count", lambda: 3)
    cfg = replace(
        CFG,
        rollout=replace(CFG.rollout, group_timeout=7.0),
        grpo=replace(CFG.grpo, max_staleness=2),
    )
    runtime = SimpleNamespace(collector=lambda: "collector")
    stream = TaskStreamState(update=5, next_index=9, pending={6: 4}, backlog=(8,))
    grpo._make_scheduler(cfg, tmp_path, runtime, None, stream=stream, timer=None)
    (((collector, _), options),) = calls
    assert collector == "collector"
    assert options.pop("on_episode")
    assert options == {
        "first": 9,
        "stride": 3,
        "resume": {6: 4},
        "backlog": (8,),
        "finished": {},
        "max_staleness": 2,
        "timeout": 7.0,
    }


def test_update_is_divided_over_processes(monkeypatch):
    monkeypatch.setattr(distributed, "process_count", lambda: 2)
    options = GRPOConfig(tasks_per_update=4, minibatches=2, max_extra_groups=3)
    expected = replace(options, tasks_per_update=2, max_extra_groups=2)
    assert grpo._process_options(options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks_per_update": 3}, "tasks_per_update=3 does not divide evenly over 2 processes"),
        (
            {"tasks_per_update": 4, "minibatches": 3},
            "minibatches=3 is more than the 2 tasks of each of 2 processes",
        ),
    ],
)
def test_indivisible_update_is_rejected(tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(distributed, "process_count", lambda: 2)
    monkeypatch.setattr(grpo, "init_shared_workdir", lambda *_: None)
    with pytest.raises(ConfigError, match=rf"grpo\.{message}"):
        train_grpo(replace(CFG, grpo=replace(CFG.grpo, **options)), tmp_path)


def test_run_rejects_episodes_of_other_weights(train, tmp_path, monkeypatch):
    """The run ended before its first checkpoint, and its policy was trained again."""
    weights = tmp_path / "weights"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), weights)

    def interrupt(*_):
        raise Interrupt

    monkeypatch.setattr(grpo, "_train_on_batch", interrupt)
    with pytest.raises(Interrupt):
        train(policy_path=str(weights))
    model, params = policy.load_hf(weights)
    params["final_norm"] = params["final_norm"] * 1.01
    policy.save_hf(weights, model, params)
    with pytest.raises(ConfigError, match="differ from those that this run"):
        train(policy_path=str(weights))


class Interrupt(BaseException):
    """End of a run at any place."""


class DeadEnv(FakeEnv):
    """Environment whose agent cannot act: the browser fails at the reward."""

    def compute_reward(self, answer: str | None) -> float:
        raise InfraError("the site is down")


def test_run_with_infra_episodes_only_stops(train, tmp_path):
    # There are fewer updates than the patience of the guard.
    with pytest.raises(GuardLimitError, match="after update 2: 100% of the episodes are lost"):
        train(env_factory=lambda index: DeadEnv())
    assert not (tmp_path / "policy").exists()


def test_resumed_run_repeats_update_with_infra_episode(train, tmp_path, monkeypatch):
    options = {"checkpoint_interval": 2, "filter_groups": False}
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        real_train, updates = grpo._train_on_batch, iter(range(2))

        def interrupt_second(*args):
            if next(updates):
                raise Interrupt
            return real_train(*args)

        patch.setattr(grpo, "_train_on_batch", interrupt_second)
        train(env_factory=lambda index: FakeEnv() if index else DeadEnv(), **options)
    # The site works again, but the episodes of update 2 were sampled after update 1.
    train(**options)
    records = metric_writers.read_metrics(tmp_path / "metrics.jsonl")
    assert [record["episodes/infra_errors"] for record in records] == [1, 0]


def test_browser_counts_include_validation(train, tmp_path, monkeypatch):
    pool_stats = SimpleNamespace(launches=0, crashes=0)

    class CrashingValidation:
        """Validation in which two browsers start and one of them crashes."""

        def __init__(self, cfg, runtime, num_episodes):
            runtime.pool.stats = lambda: SimpleNamespace(**vars(pool_stats))

        def measure(self):
            pool_stats.launches += 2
            pool_stats.crashes += 1
            return {}

    monkeypatch.setattr(grpo, "Validation", CrashingValidation)
    # The process that merges has the counts of another one too.
    monkeypatch.setattr(distributed, "allgather", lambda value: [value, value])
    train(eval_interval=1)
    records = metric_writers.read_metrics(tmp_path / "metrics.jsonl")
    assert [record["browser/launches"] for record in records] == [4, 4]
    assert [record["browser/crashes"] for record in records] == [2, 2]


def test_failed_start_does_not_occupy_workdir(train, tmp_path):
    with pytest.raises(ConfigError, match="unknown task"):
        train(tasks=("pres",))
    assert not (tmp_path / "tensorboard").exists()
    assert train()


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        (RolloutConfig(top_p=0.9), "rollout.top_p=0.9"),
        (RolloutConfig(top_k=20), "rollout.top_k=20"),
    ],
)
def test_train_grpo_rejects_filtered_sampling(tmp_path, rollout, message):
    cfg = replace(RunConfig(), rollout=rollout)
    for run in (train_grpo, quickstart):
        with pytest.raises(ConfigError, match=message):
            run(cfg, tmp_path, NullProgress())
    assert not list(tmp_path.iterdir())
