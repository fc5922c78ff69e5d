"""Tests of training metrics."""

from __future__ import annotations

import gc
import mmap

import numpy as np
import pytest

from tests.rollout.fakes import TASK
from webagent_jax.tracking import metric_writers
from webagent_jax.train import metrics
from webagent_jax.train.batches import Batch
from webagent_jax.types import (
    Action,
    ActionKind,
    Completion,
    Episode,
    Group,
    Observation,
    Outcome,
    Turn,
)


def make_turn(element_id="1", page="page", versions=(0,)):
    ids = np.zeros(len(versions), np.int32)
    completion = Completion(ids, ids.astype(np.float32), np.asarray(versions, np.int32), "stop")
    action = Action(ActionKind.CLICK, element_id)
    return Turn(ids, completion, "", action, Observation(page, "http://fake/"))


def make_episode(reward, *turns):
    outcome = Outcome.INFRA if reward is None else Outcome.SUCCESS if reward else Outcome.FAILURE
    return Episode(TASK, "", turns or (make_turn(),), reward, outcome)


def test_batch_metrics_are_those_of_sampled_episodes_with_reward() -> None:
    repeated_turns = (
        make_turn("1", "page", (0, 0, 0)),
        make_turn("1", "page", (0, 0)),
        # Another page, then another action: no repetition.
        make_turn("1", "other page"),
        make_turn("2", "other page"),
    )
    success, *failures = (
        make_episode(1, *repeated_turns),
        *(make_episode(0) for _ in range(4)),
    )
    # Its turns repeat each other.
    infra = make_episode(None, make_turn(), make_turn(), make_turn())
    replayed_success = make_episode(1)
    batch = Batch(
        groups=[
            Group(TASK, (success, failures[0])),
            Group(TASK, (failures[1], infra)),
            # The replayed success replaces the last failure.
            Group(TASK, (failures[2], replayed_success)),
        ],
        all_episodes=[success, failures[0], failures[1], infra, failures[2], failures[3]],
        num_filtered=1,
        num_replayed=1,
    )
    values = metrics.batch_metrics(batch)
    expected = {
        "episodes/total": 6,
        "episodes/infra_errors": 1,
        "groups/kept_fraction": 3 / 4,
        "groups/replayed_fraction": 1 / 3,
        # Five of six episodes have a reward.
        "reward": 1 / 5,
        "success/fake": 1 / 5,
        "scored/fake": 5,
        "episodes/truncated_fraction": 0,
        # Turns of the success and of four failures, one token each but for the first two.
        "episode/num_turns": (4 + 4) / 5,
        "episode/response_tokens": (3 + 2 + 1 + 1 + 4) / 5,
        "turn/response_tokens": (3 + 2 + 1 + 1 + 4) / 8,
        "turns/repeated_fraction": 1 / 3,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected)


def test_batch_metrics_without_rewards_are_counts_and_fractions() -> None:
    infra = make_episode(None)
    batch = Batch(groups=[], all_episodes=[infra, infra], num_filtered=1)
    assert metrics.batch_metrics(batch) == {
        "episodes/infra_errors": 2,
        "episodes/total": 2,
        "groups/kept_fraction": 0,
        "groups/replayed_fraction": 0,
    }


def test_staleness_is_age_of_trained_tokens_in_updates() -> None:
    newer = make_episode(1, make_turn(versions=(8, 8, 6)), make_turn(versions=(6,)))
    older = make_episode(0, make_turn(versions=(2,)))
    filtered = make_episode(0, make_turn(versions=(0,)))
    batch = Batch([Group(TASK, (newer,)), Group(TASK, (older,))], [newer, older, filtered], 1)
    # With two steps per update, the ages of the five tokens are 0, 0, 1, 1 and 3 updates.
    assert metrics.staleness_metrics(batch, version=8, steps=2) == {
        "staleness/mean": pytest.approx(1.0),
        "staleness/max": 3.0,
    }
    assert metrics.staleness_metrics(Batch([], [filtered], 1), version=8, steps=2) == {}


def test_merge_process_metrics_sums_counts_and_averages_rewards() -> None:
    first_metrics = {
        "episodes/total": 30.0,
        "episodes/infra_errors": 1.0,
        "reward": 0.5,
        "memory/process_mib": 700.0,
    }
    second_metrics = {
        "episodes/total": 10.0,
        "episodes/infra_errors": 2.0,
        "reward": 0.1,
        "memory/process_mib": 900.0,
    }
    assert metrics.merge_process_metrics([first_metrics, second_metrics]) == {
        "episodes/total": 40,
        "episodes/infra_errors": 3,
        "reward": pytest.approx((29 * 0.5 + 8 * 0.1) / 37),
        "memory/process_mib": 900,
    }
    assert metrics.merge_process_metrics([first_metrics | {"kl": 0.3}, second_metrics])["kl"] == 0.3


def test_merge_process_metrics_without_rewards_averages_processes() -> None:
    infra = {"episodes/total": 4.0, "episodes/infra_errors": 4.0}
    processes = [infra | {"seconds/update": 2.0}, infra | {"seconds/update": 4.0}]
    assert metrics.merge_process_metrics(processes)["seconds/update"] == 3


def test_merge_process_metrics_weights_sites_by_their_episodes() -> None:
    counts = {"episodes/total": 16.0, "episodes/infra_errors": 0.0}
    first = {**counts, "success/b": 1.0, "scored/b": 1.0, "success/a": 0.2, "scored/a": 15.0}
    second = {**counts, "success/b": 0.0, "scored/b": 16.0}
    merged = metrics.merge_process_metrics(
        [first | {"staleness/max": 3.0}, second | {"staleness/max": 0.0}]
    )
    assert merged["success/b"] == pytest.approx(1 / 17) and merged["scored/b"] == 17
    assert merged["success/a"] == pytest.approx(0.2)
    assert merged["staleness/max"] == 3


def test_memory_metrics_report_allocated_memory() -> None:
    # Earlier tests leave garbage; the tolerance is for memory that other threads free meanwhile.
    gc.collect()
    initial_metrics = metrics.memory_metrics()
    # An array could reuse freed heap pages, so map new memory.
    with mmap.mmap(-1, 256 * 2**20) as memory:
        for offset in range(0, len(memory), mmap.PAGESIZE):
            memory[offset] = 1
        final_metrics = metrics.memory_metrics()
    for name in ("memory/process_mib", "memory/with_browsers_mib"):
        assert final_metrics[name] - initial_metrics[name] == pytest.approx(256, abs=100)
    assert final_metrics["memory/with_browsers_mib"] >= final_metrics["memory/process_mib"] > 0


class RecordingPending:
    """Pending metrics that record when they are fetched."""

    def __init__(self, loss, fetched_losses):
        self._loss, self._fetched_losses = loss, fetched_losses

    def fetch(self):
        self._fetched_losses.append(self._loss)
        return {"loss": self._loss}


def test_step_writer_fetches_one_step_late_and_loses_none(tmp_path):
    fetched_losses: list[float] = []
    step_writer = metrics.StepWriter(metric_writers.JsonlWriter(tmp_path / "metrics.jsonl"))
    for update in (1, 2, 3):
        pending = RecordingPending(float(update), fetched_losses)
        step_writer.write(update, pending, {"padding": 0.5})
        assert fetched_losses == [1.0, 2.0][: update - 1]
    step_writer.flush()
    step_writer.flush()
    records = metric_writers.read_metrics(tmp_path / "metrics.jsonl")
    assert [(r["update"], r["loss"], r["padding"]) for r in records] == [
        (1, 1.0, 0.5),
        (2, 2.0, 0.5),
        (3, 3.0, 0.5),
    ]
