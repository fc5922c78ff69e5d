"""configs/arena.py: all test tasks once each, and none of them in training."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from webagent_jax import config

RECIPE = Path(__file__).parents[2] / "configs" / "arena.py"


def test_it_trains_on_fresh_tasks_and_is_tested_on_the_whole_split() -> None:
    cfg = config.from_config_dict(runpy.run_path(str(RECIPE))["get_config"]())
    assert cfg.suite.name == "arena" and not cfg.suite.tasks
    assert cfg.eval.seeds_per_task == cfg.suite.train_seeds_per_task == cfg.bc.demos_per_task == 1
    assert cfg.suite.arena.task_seed >= 0


def test_smollm2_trains_adapters_on_restated_tasks() -> None:
    get_config = runpy.run_path(str(RECIPE))["get_config"]
    cfg = config.from_config_dict(get_config("smollm2"))
    assert cfg.policy.path == "smollm2-135m" and cfg.lora.rank > 0
    assert cfg.suite.arena.expert_thoughts == "restate" and cfg.bc.held_out_demos > 0
    with pytest.raises(config.ConfigError, match="unknown variant 'other'; available: smollm2"):
        get_config("other")
