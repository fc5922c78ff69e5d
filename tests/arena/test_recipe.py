"""Tests of configs/arena.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs import arena
from webagent_jax import config


def test_config_trains_on_generated_tasks_and_tests_all_tasks() -> None:
    cfg = arena.get_config()
    assert cfg.suite.name == "arena" and not cfg.suite.tasks
    assert cfg.eval.seeds_per_task == cfg.suite.train_seeds_per_task == cfg.bc.demos_per_task == 1
    assert cfg.suite.arena.task_seed >= 0


def test_smollm2_variant_uses_lora_and_restate_thoughts() -> None:
    cfg = arena.get_config("smollm2")
    assert cfg.policy.path == "smollm2-135m-arena" and cfg.lora.rank > 0
    assert cfg.bc.expert_thoughts == "restate" and cfg.bc.held_out_demos > 0
    with pytest.raises(config.ConfigError, match="unknown variant 'other'; available: "):
        arena.get_config("other")


def test_stages_of_bc_train_on_different_tasks() -> None:
    stages = [
        arena.get_config(name) for name in ("first_turns", "three_turns", "all_turns", "many_demos")
    ]
    assert [cfg.bc.turns_per_demo for cfg in stages] == [1, 3, 0, 0]
    assert len({cfg.suite.arena.task_seed for cfg in stages}) == 4
    # Each stage starts from the adapter of the one before, in the workdir of its command.
    doc = arena.__doc__
    for cfg in stages[1:]:
        assert f"--workdir={Path(cfg.policy.path).parent}\n" in doc
    assert all(cfg.bc.held_out_demos >= cfg.bc.eval_decisions for cfg in stages)


@pytest.mark.parametrize(
    ("bc_name", "name"),
    [
        ("short_bc", "short_grpo"),
        ("few_demos_bc", "few_demos_grpo"),
        ("few_demos_bc", "few_demos_adaptive_grpo"),
        ("test_templates_bc", "test_templates_grpo"),
    ],
)
def test_grpo_variants_train_on_other_tasks_than_their_bc(bc_name: str, name: str) -> None:
    bc, grpo = (arena.get_config(variant) for variant in (bc_name, name))
    assert bc.suite.arena.task_seed != grpo.suite.arena.task_seed
    assert not bc.suite.tasks or set(grpo.suite.tasks) <= set(bc.suite.tasks)
    assert grpo.suite.arena.test_templates_only == bc.suite.arena.test_templates_only
    # M-GRPO starts from the adapter in the workdir of the command of BC.
    doc = arena.__doc__
    command = f"--config=arena:{bc_name} --workdir={Path(grpo.policy.path).parent}\n"
    assert command in doc
