"""Tests of behavior cloning: length checks of demonstrations, resume and loss weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import quickstart
from tests.demos.test_demos import episode
from tests.recording_progress import RecordingProgress
from tests.train.checkpoints import assert_equal_checkpoints
from webagent_jax import demos, distributed, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import BCConfig, ConfigError, RunConfig
from webagent_jax.demos import Demonstration, DemoTurn
from webagent_jax.policy import resolve_dir
from webagent_jax.rollout.runtime import prompt_format
from webagent_jax.tracking.metric_writers import read_metrics
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.train.bc import _check_lengths, make_forest, train_bc
from webagent_jax.types import Action, ActionKind, Decision, Observation, Task

SMOKE = quickstart.get_config("smoke")
CLICK = Decision("press it", Action(ActionKind.CLICK, "1"))
PAGE = "button go [1]"


def make_demonstration(number: int, pages: Sequence[str] = (PAGE, PAGE)) -> Demonstration:
    task = Task(f"miniwob/press/{number}", "miniwob", ("press",), "", "http://x/", seed=number)
    observations = [Observation(page, "http://x/") for page in pages]
    return Demonstration(
        task, "Press go", tuple(DemoTurn(observation, CLICK) for observation in observations)
    )


def measure_max_tokens(cfg: RunConfig, demos_dir: Path) -> tuple[int, int, int]:
    """Return the maximum number of tokens of a turn, a prompt and a response."""
    tokenizer = ChatTokenizer(resolve_dir(cfg.policy.path))
    turns = [
        (len(turn.prompt_ids), len(turn.completion.token_ids))
        for demo in demos.read(demos_dir)
        for turn in demos.to_episode(
            demo, tokenizer, PromptFormat(TEMPLATES["compact"], cfg.prompt.thinking)
        ).turns
    ]
    prompts, responses = zip(*turns, strict=True)
    return max(map(sum, turns)), max(prompts), max(responses)


class SimulatedKill(Exception):
    pass


class KillingProgress(NullProgress):
    """Progress that simulates a kill at the end of update 2, before its checkpoint."""

    def __init__(self) -> None:
        self._num_updates = 0

    def advance(self, n=1, **counts) -> None:
        self._num_updates += n
        if self._num_updates == 2:
            raise SimulatedKill


@pytest.fixture
def cfg() -> RunConfig:
    return dataclasses.replace(
        SMOKE, bc=dataclasses.replace(SMOKE.bc, epochs=1, batch_episodes=2, eval_interval=0)
    )


def test_train_bc_rejects_turn_longer_than_row(cfg, tmp_path):
    pages = [PAGE] * 5 + ["button go " * 400 + "[1]"]
    demos.write(
        tmp_path / "demos",
        (make_demonstration(number, (PAGE, page)) for number, page in enumerate(pages)),
    )
    max_turn_tokens, max_prompt_tokens, _ = measure_max_tokens(cfg, tmp_path / "demos")
    with pytest.raises(ConfigError) as error:
        train_bc(cfg, tmp_path)
    message = str(error.value)
    assert "1 of 12 turns, in 1 of 6 demonstrations, do not fit bc.row_tokens=512" in message
    assert f"set bc.row_tokens={max_turn_tokens} to fit all" in message
    assert f"engine.max_model_len={max_prompt_tokens + cfg.rollout.max_new_tokens}" in message
    assert len(message.splitlines()) <= 3
    assert not (tmp_path / "checkpoints").exists() or not any((tmp_path / "checkpoints").iterdir())
    assert not (tmp_path / "policy").exists()


def test_resumed_bc_run_matches_uninterrupted_run_and_rejects_other_demos(cfg, tmp_path):
    # Each update trains on the first turn of one demonstration and on one that is drawn.
    bc = dataclasses.replace(cfg.bc, batch_episodes=1, turns_per_demo=2, checkpoint_interval=1)
    cfg = dataclasses.replace(cfg, bc=bc)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    demonstrations = [
        make_demonstration(number, [f"button {number} {turn} [1]" for turn in "abc"])
        for number in range(4)
    ]
    for workdir in (whole, cut):
        demos.write(workdir / "demos", demonstrations)
    policy_dirs = [train_bc(cfg, whole)]
    with pytest.raises(SimulatedKill):
        train_bc(cfg, cut, KillingProgress())
    assert [path.name for path in (cut / "checkpoints").iterdir()] == ["1"]
    policy_dirs.append(train_bc(cfg, cut))
    params = [policy.load_hf(path)[1] for path in policy_dirs]
    jax.tree.map(np.testing.assert_array_equal, *params)
    assert_equal_checkpoints(4, whole, cut)
    records = [read_metrics(workdir / "metrics.jsonl") for workdir in (whole, cut)]
    assert [record["update"] for record in records[0]] == [1, 2, 3, 4]
    assert records[0] == records[1]
    # The resumed run has accepted its demonstrations; it rejects others.
    demos.write(cut / "demos", demonstrations[:3], overwrite=True)
    with pytest.raises(ConfigError, match="have changed since this run began"):
        train_bc(cfg, cut)
    with pytest.raises(demos.DemosError, match="no demonstrations"):
        demos.checksum(tmp_path)


def test_train_bc_checks_engine_of_decisions_before_training(cfg, tmp_path):
    demos.write(tmp_path / "demos", [make_demonstration(i) for i in range(6)])
    engine = dataclasses.replace(cfg.engine, kv_cache_mib=1, max_model_len=512)
    bc = dataclasses.replace(cfg.bc, eval_decisions=4)
    with pytest.raises(ConfigError, match="kv_cache_mib"):
        train_bc(dataclasses.replace(cfg, engine=engine, bc=bc), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_length_checks_suggest_sufficient_limits(cfg, tmp_path):
    demos.write(
        tmp_path, [make_demonstration(0), make_demonstration(1, (PAGE, "button go " * 400 + "[1]"))]
    )
    max_turn_tokens, max_prompt_tokens, max_response_tokens = measure_max_tokens(cfg, tmp_path)
    tokenizer = ChatTokenizer(resolve_dir(cfg.policy.path))

    def check(row_tokens: int, progress: RecordingProgress) -> None:
        rollout = dataclasses.replace(cfg.rollout, max_new_tokens=max_response_tokens - 1)
        check_cfg = dataclasses.replace(
            cfg, bc=dataclasses.replace(cfg.bc, row_tokens=row_tokens), rollout=rollout
        )
        _check_lengths(check_cfg, demos.read(tmp_path), tokenizer, progress)

    with pytest.raises(ConfigError, match=rf"set bc\.row_tokens={max_turn_tokens} to fit all"):
        check(max_turn_tokens - 1, RecordingProgress())
    progress = RecordingProgress()
    check(max_turn_tokens, progress)
    assert progress.lines == [
        "1 of 2 demonstrations have prompts too long for rollouts: "
        f"set engine.max_model_len={max_prompt_tokens + max_response_tokens - 1} to fit all",
        "2 of 2 demonstrations have responses too long for rollouts: "
        f"set rollout.max_new_tokens={max_response_tokens} to fit all",
    ]


CFG = RunConfig(bc=BCConfig(row_tokens=1024))
PACKING_OPTIONS = {"row_multiple": 1}


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(resolve_dir("webagent-tiny"))


@pytest.fixture(scope="module")
def batch():
    """Return demonstrations of 1, 2 and 5 turns."""
    return [demos.from_episode(episode(num_turns, turns=num_turns)) for num_turns in (1, 2, 5)]


def sum_weights_per_turn(forest) -> np.ndarray:
    """Return the sum of weights of each turn, ascending."""
    turn_weights = []
    for targets, weights in zip(forest.rows.target_indices, forest.rows.loss_weights, strict=True):
        weighted_targets = targets[weights != 0]
        starts = np.flatnonzero(np.diff(weighted_targets, prepend=-2) != 1)
        if len(weighted_targets):
            turn_weights += list(np.add.reduceat(weights[weights != 0], starts))
    return np.sort(turn_weights)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (BCConfig().loss_aggregation, [1 / 8] * 8),  # equal weights for all (history, action) pairs
        ("episode_turn_token_mean", [1 / 15] * 5 + [1 / 6] * 2 + [1 / 3]),
    ],
)
def test_make_forest_weights_turns_by_loss_aggregation(tokenizer, batch, aggregation, expected):
    cfg = dataclasses.replace(CFG, bc=dataclasses.replace(CFG.bc, loss_aggregation=aggregation))
    forest = make_forest(cfg, PACKING_OPTIONS, tokenizer, batch, np.random.default_rng(0))
    np.testing.assert_allclose(sum_weights_per_turn(forest), expected, rtol=1e-5)


def test_make_forest_of_process_without_demonstration_is_empty(tokenizer, batch, monkeypatch):
    monkeypatch.setattr(distributed, "process_count", lambda: 4)
    shapes, weight = set(), 0.0
    for process in range(4):
        monkeypatch.setattr(distributed, "process_index", lambda process=process: process)
        forest = make_forest(CFG, PACKING_OPTIONS, tokenizer, batch, np.random.default_rng(0))
        shapes.add(forest.rows.tokens.shape[1])
        weight += forest.rows.loss_weights.sum()
    assert len(batch) == 3 and not forest.rows.loss_weights.any()
    assert shapes == {CFG.bc.row_tokens} and weight == pytest.approx(1)


@pytest.mark.parametrize(("turns_per_demo", "count"), [(0, 4), (1, 1), (2, 2)])
def test_make_forest_skips_mistakes(tokenizer, batch, turns_per_demo, count):
    first, *others = batch[-1].turns
    mistake = dataclasses.replace(
        first, decision=dataclasses.replace(first.decision, is_mistake=True)
    )
    demo = dataclasses.replace(batch[-1], turns=(mistake, *others))
    bc_options = dataclasses.replace(CFG.bc, turns_per_demo=turns_per_demo)
    cfg = dataclasses.replace(CFG, bc=bc_options)
    forest = make_forest(cfg, PACKING_OPTIONS, tokenizer, [demo], np.random.default_rng(0))
    np.testing.assert_allclose(sum_weights_per_turn(forest), [1 / count] * count, rtol=1e-5)
    # The mistake is an input only: the first trained token follows the second prompt.
    second = demos.to_episode(demo, tokenizer, prompt_format(cfg)).turns[1]
    trained = forest.rows.target_indices[forest.rows.loss_weights != 0]
    start = forest.rows.positions[0, trained].min()
    assert start >= len(second.prompt_ids) - 1


def test_make_forest_trains_on_first_turn_and_drawn_others(tokenizer, batch):
    def num_prompt_tokens(turns_per_demo, seed):
        bc_options = dataclasses.replace(CFG.bc, turns_per_demo=turns_per_demo)
        cfg = dataclasses.replace(CFG, bc=bc_options)
        forest = make_forest(cfg, PACKING_OPTIONS, tokenizer, batch, np.random.default_rng(seed))
        # 1, 2 and 5 turns, up to the limit; their weights still sum to 1.
        count = sum(min(len(demo.turns), turns_per_demo) for demo in batch)
        np.testing.assert_allclose(sum_weights_per_turn(forest), [1 / count] * count, rtol=1e-5)
        # Positions of the first response token: later turns have longer prompts.
        is_start = np.diff(forest.rows.target_indices, prepend=-2) != 1
        starts = forest.rows.target_indices[is_start & (forest.rows.loss_weights != 0)]
        return sorted(forest.rows.positions[0, starts].tolist())

    first_turns = num_prompt_tokens(1, seed=0)
    assert first_turns == num_prompt_tokens(1, seed=1)
    drawn = {tuple(num_prompt_tokens(2, seed)) for seed in range(20)}
    assert all(set(first_turns) <= set(lengths) for lengths in drawn)
    # The second turn of the longest demonstration is any of its last four.
    assert len(drawn) == 4
