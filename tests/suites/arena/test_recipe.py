"""configs/arena.py: all test tasks once each, and none of them in training."""

from __future__ import annotations

import runpy
from pathlib import Path

from webagent_jax import config

RECIPE = Path(__file__).parents[3] / "configs" / "arena.py"


def test_it_trains_on_fresh_tasks_and_is_tested_on_the_whole_split() -> None:
    cfg = config.from_config_dict(runpy.run_path(str(RECIPE))["get_config"]())
    assert cfg.suite.name == "arena" and not cfg.suite.tasks
    assert cfg.eval.episodes_per_task == cfg.suite.train_seeds == cfg.bc.demos_per_task == 1
    assert cfg.suite.arena.fresh_seed >= 0
