"""M-GRPO by turns and with collectors that play on: the same work on sites that are far away."""

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
_WARM_UP = 2  # updates that compile
_LATENCY = 200.0  # ms of every answer

_CFG = RunConfig(
    suite=SuiteConfig(
        tasks=("choose-list", "click-checkboxes", "click-menu", "click-option", "click-tab"),
        latency_ms=_LATENCY,
    ),
    engine=EngineConfig(slots=2, max_tokens=512),
    # One context, as with one copy of a site: it waits for the site most of the time.
    rollout=RolloutConfig(contexts=1, max_turns=8, max_new_tokens=96, episode_timeout=600.0),
    grpo=GRPOConfig(
        tasks_per_update=2,
        group_size=8,
        epochs=8,  # so many that learning takes as long as playing, on two cores
        minibatches=2,
        drop_flat_groups=False,  # so that every update has as many episodes
        row_tokens=512,
        optimizer=OptimizerConfig(learning_rate=0.0),  # the same episodes, token for token
    ),
)


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """A result per staleness: medians over `repeats` times five updates after the first two."""
    seconds: dict[int, float] = {}
    work: dict[int, list[float]] = {}
    for staleness in _STALENESS:
        grpo = replace(_CFG.grpo, staleness=staleness, updates=_WARM_UP + 5 * repeats + staleness)
        with tempfile.TemporaryDirectory() as folder:
            train_grpo(replace(_CFG, grpo=grpo), Path(folder))
            # At the end nothing is played ahead any more: those updates are not like the others.
            records = read_metrics(Path(folder) / "metrics.jsonl")[
                _WARM_UP : _WARM_UP + 5 * repeats
            ]
        seconds[staleness] = median(r["seconds/rollout"] + r["seconds/update"] for r in records)
        work[staleness] = [record["trajectory_tokens"] for record in records]
        yield {"name": f"staleness {staleness}", "seconds per update": seconds[staleness]} | {
            name: median(record[name] for record in records)
            for name in (
                "seconds/rollout",
                "seconds/update",
                "busy/browser",
                "busy/engine",
                "busy/learner",
                "staleness/mean",
                "staleness/max",
                "reward",
            )
        }
        if staleness:
            if work[staleness] != work[0]:
                raise RuntimeError(f"not the same work: {work} tokens a trajectory")
            faster = seconds[0] / seconds[staleness]
            yield {"name": f"staleness {staleness} against 0", "times as fast": faster}
