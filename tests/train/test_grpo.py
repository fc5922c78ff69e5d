"""Tests of the config checks of M-GRPO."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webagent_jax.config import ConfigError, RolloutConfig, RunConfig
from webagent_jax.quickstart import quickstart
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.train.grpo import train_grpo


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
