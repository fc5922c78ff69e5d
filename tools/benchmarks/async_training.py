"""Benchmark of synchronous and asynchronous M-GRPO: the same episodes on sites with latency."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from webagent_jax.config import (
    EngineConfig,
    GRPOConfig,
    OptimizerConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)
from webagent_jax.tracking.metric_writers import read_metrics
from webagent_jax.train.grpo import train_grpo

_STALENESS = (0, 1)
_WARMUP_UPDATES = 2  # updates that compile
_LATENCY_MS = 200.0  # delay of every response

_CFG = RunConfig(
    suite=SuiteConfig(
        tasks=("choose-list", "click-checkboxes", "click-menu", "click-option", "click-tab"),
        response_delay_ms=_LATENCY_MS,
    ),
    engine=EngineConfig(slots=2, max_model_len=512),
    # One episode at a time, as with one replica of a site: it waits for the site most of the time.
    rollout=RolloutConfig(
        max_concurrent_episodes=1, max_turns=8, max_new_tokens=96, episode_timeout=600.0
    ),
    grpo=GRPOConfig(
        tasks_per_update=2,
        group_size=8,
        epochs=8,  # makes an update as long as its rollouts, on two cores
        minibatches=2,
        filter_groups=False,  # the same number of episodes in every update
        row_tokens=512,
        optimizer=OptimizerConfig(learning_rate=0.0),  # identical episodes, token by token
    ),
)


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield one result per staleness: medians over 5 * `repeats` updates, after two of warmup."""
    seconds: dict[int, float] = {}
    response_tokens: dict[int, list[float]] = {}
    for staleness in _STALENESS:
        grpo = replace(
            _CFG.grpo, max_staleness=staleness, updates=_WARMUP_UPDATES + 5 * repeats + staleness
        )
        with tempfile.TemporaryDirectory() as folder:
            train_grpo(replace(_CFG, grpo=grpo), Path(folder))
            # The last updates differ: no rollouts of later updates run at the same time.
            records = read_metrics(Path(folder) / "metrics.jsonl")[
                _WARMUP_UPDATES : _WARMUP_UPDATES + 5 * repeats
            ]
        seconds[staleness] = median(r["seconds/rollout"] + r["seconds/update"] for r in records)
        response_tokens[staleness] = [record["episode/response_tokens"] for record in records]
        yield {"name": f"staleness {staleness}", "seconds per update": seconds[staleness]} | {
            name: median(record[name] for record in records)
            for name in (
                "seconds/rollout",
                "seconds/update",
                "utilization/browser",
                "utilization/engine",
                "utilization/learner",
                "staleness/mean",
                "staleness/max",
                "reward",
            )
        }
        if staleness:
            if response_tokens[staleness] != response_tokens[0]:
                raise RuntimeError(f"different episodes: {response_tokens} tokens per episode")
            speedup = seconds[0] / seconds[staleness]
            yield {"name": f"staleness {staleness} against 0", "times as fast": speedup}
