"""Configs that M-GRPO refuses before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webagent_jax import train
from webagent_jax.config import ConfigError, RolloutConfig, RunConfig
from webagent_jax.quickstart import quickstart
from webagent_jax.report.progress import NullProgress


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        (RolloutConfig(top_p=0.9), "rollout.top_p=0.9"),
        (RolloutConfig(top_k=20), "rollout.top_k=20"),
    ],
)
def test_filtered_samples_are_refused(tmp_path, rollout, message):
    cfg = replace(RunConfig(), rollout=rollout)
    for run in (train.grpo, quickstart):
        with pytest.raises(ConfigError, match=message):
            run(cfg, tmp_path, NullProgress())
    assert not list(tmp_path.iterdir())
