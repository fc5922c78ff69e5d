"""Benchmark of packing groups of episodes into forest rows: seconds and padding.

The batch has the shape of an update of the paper: 16 tasks, 4 episodes each, 15 turns. It is
measured with pages of 600 to 900 tokens, which give prompts of 1,000 to 2,100 tokens, and with
prompts of one fixed length. To measure one core, pin the process:
`taskset -c 0 python launch/benchmark.py --benchmark=rows`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.benchmarks import timing
from webagent_jax import learn
from webagent_jax.config import GRPOConfig, RolloutConfig
from webagent_jax.types import (
    Completion,
    Episode,
    Group,
    IntArray,
    Observation,
    Outcome,
    ParseError,
    Task,
    Turn,
)

_GROUPS, _GROUP_SIZE, _TURNS = 16, 4, 15
_SYSTEM, _INTENT, _PLACEHOLDER, _RESPONSE = 300, 40, 12, 60  # tokens
_PAGE = (600, 900)  # minimum and maximum tokens of a page
_PROMPT_TOKENS = (None, 4_000)  # length of every prompt; None: sum of its parts
_ROW_TOKENS = (16_384, 8_192)
_VOCABULARY = 150_000


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield one result per prompt length and row length."""
    for prompt in _PROMPT_TOKENS:
        groups = _groups(prompt, np.random.default_rng(0))
        turns = [turn for group in groups for e in group.episodes for turn in e.turns]
        tokens = sum(len(turn.prompt_ids) for turn in turns)
        unit = "pages" if prompt is None else "prompts"
        for row_tokens in _ROW_TOKENS:
            yield {
                "name": f"rows: {unit} of {prompt or _PAGE} tokens, rows of {row_tokens:,}",
                "turns": len(turns),
                "prompt tokens": tokens,
                **_measure(groups, row_tokens, repeats),
            }


def _measure(groups: list[Group], row_tokens: int, repeats: int) -> dict[str, Any]:
    grpo, rollout = GRPOConfig(row_tokens=row_tokens), RolloutConfig()
    wall_seconds, cpu_seconds = [], []
    for _ in range(repeats):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        forest = learn.pack_groups(groups, grpo, rollout)
        wall_seconds.append(time.perf_counter() - wall_start)
        cpu_seconds.append(time.process_time() - cpu_start)
    return {
        "seconds": timing.spread(wall_seconds),
        "processor seconds": timing.spread(cpu_seconds),
        "rows": int(np.count_nonzero(forest.rows.loss_weights.any(axis=1))),
        "shared fraction": forest.shared_fraction,
        "padding": forest.padding_fraction,
    }


def _groups(prompt: int | None, rng: np.random.Generator) -> list[Group]:
    """Return groups whose episodes share the first page; placeholders replace earlier pages."""

    def ids(count: int) -> IntArray:
        return rng.integers(0, _VOCABULARY, count).astype(np.int32)

    def random_page(history: list[IntArray]) -> IntArray:
        history_tokens = sum(len(part) for part in history)
        return ids(prompt - history_tokens if prompt else int(rng.integers(*_PAGE, endpoint=True)))

    system, placeholder = ids(_SYSTEM), ids(_PLACEHOLDER)

    def episode(task: Task, intent: IntArray, first_page: IntArray, reward: float) -> Episode:
        history, turns = [system, intent], []
        for turn in range(_TURNS):
            prompt_ids = np.concatenate([*history, random_page(history) if turn else first_page])
            logp = np.full(_RESPONSE, -1.0, np.float32)
            completion = Completion(ids(_RESPONSE), logp, np.zeros(_RESPONSE, np.int32), "stop")
            turns.append(Turn(prompt_ids, completion, "", ParseError(""), Observation("", "")))
            history += [placeholder, completion.token_ids]
        outcome = Outcome.SUCCESS if reward else Outcome.FAILURE
        return Episode(task, "", tuple(turns), reward, outcome)

    groups = []
    for number in range(_GROUPS):
        task = Task(f"rows/{number}", "rows", ("rows",), "", "")
        intent = ids(_INTENT)
        first_page = random_page([system, intent])
        episodes = (
            episode(task, intent, first_page, float(attempt % 2)) for attempt in range(_GROUP_SIZE)
        )
        groups.append(Group(task, tuple(episodes)))
    return groups
