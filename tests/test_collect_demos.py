"""Demonstrations that the policy could not repeat are left out and counted."""

from __future__ import annotations

import dataclasses

import pytest

from configs import quickstart
from webagent_jax import config, demos
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.collect_demos import collect_demos
from webagent_jax.config import ConfigError
from webagent_jax.policy import resolve_dir
from webagent_jax.tracking.progress import NullProgress

pytestmark = pytest.mark.browser

SMOKE = config.from_config_dict(quickstart.get_config("smoke"))


class Log(NullProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


def collect(folder, max_tokens):
    progress = Log()
    cfg = dataclasses.replace(
        SMOKE,
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test", "enter-text")),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=1, row_tokens=4096),
        grpo=dataclasses.replace(SMOKE.grpo, row_tokens=4096),
        engine=dataclasses.replace(SMOKE.engine, max_model_len=max_tokens),
    )
    collect_demos(cfg, folder, progress)
    tokenizer, template = (
        ChatTokenizer(resolve_dir(cfg.policy.path)),
        TEMPLATES[cfg.prompt.template],
    )
    prompts = {
        demo.task.id: max(
            len(turn.prompt_ids)
            for turn in demos.to_episode(demo, tokenizer, template, cfg.prompt.thinking).turns
        )
        for demo in demos.read(folder)
    }
    return prompts, progress.lines


def test_demonstrations_that_the_engine_does_not_hold_are_counted(tmp_path):
    prompts, lines = collect(tmp_path / "all", 4096)
    assert len(prompts) == 2 and lines == []
    enough = max(prompts.values()) + SMOKE.rollout.max_new_tokens
    lost = sum(length == max(prompts.values()) for length in prompts.values())

    held, lines = collect(tmp_path / "tight", enough)
    assert held == prompts and lines == []

    held, lines = collect(tmp_path / "short", enough - 1)
    assert held == {task: n for task, n in prompts.items() if n < max(prompts.values())}
    assert lines == [
        f"{lost} of 2 demonstrations have prompts too long for engine.max_model_len={enough - 1}: "
        f"skipped; engine.max_model_len={enough} fits all"
    ]

    shortest = min(prompts.values()) + SMOKE.rollout.max_new_tokens
    with pytest.raises(ConfigError, match=rf"2 of 2 .*engine\.max_model_len={enough} fits all"):
        collect(tmp_path / "none", shortest - 1)
