"""From groups of episodes to forest rows, on the host: seconds, and how full the rows are.

The batch of a paper's update: 16 tasks of 4 episodes of 15 turns. Once with pages of 600 to 900
tokens, which makes prompts of 1,000 to 2,100; once with prompts that are all as long as asked for.
To see what one core does, pin the process: `taskset -c 0 python launch/benchmark.py --suite=rows`.
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

_GROUPS, _SIBLINGS, _TURNS = 16, 4, 15
_SYSTEM, _INTENT, _PLACEHOLDER, _RESPONSE = 300, 40, 12, 60  # tokens
_PAGE = (600, 900)  # at least and at most
_PROMPTS = (None, 4_000)  # tokens of every prompt; None: as the pages make them
_ROW_TOKENS = (16_384, 8_192)
_VOCABULARY = 150_000


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """A result per length of prompts and rows."""
    for prompt in _PROMPTS:
        groups = _groups(prompt, np.random.default_rng(0))
        turns = [turn for group in groups for e in group.episodes for turn in e.turns]
        tokens = sum(len(turn.prompt_ids) for turn in turns)
        told = "pages" if prompt is None else "prompts"
        for row_tokens in _ROW_TOKENS:
            yield {
                "name": f"rows: {told} of {prompt or _PAGE} tokens, rows of {row_tokens:,}",
                "turns": len(turns),
                "prompt tokens": tokens,
                **_measured(groups, row_tokens, repeats),
            }


def _measured(groups: list[Group], row_tokens: int, repeats: int) -> dict[str, Any]:
    grpo, rollout = GRPOConfig(row_tokens=row_tokens), RolloutConfig()
    wall, processor = [], []
    for _ in range(repeats):
        begun, worked = time.perf_counter(), time.process_time()
        forest = learn.rows_of(groups, grpo, rollout)
        wall.append(time.perf_counter() - begun)
        processor.append(time.process_time() - worked)
    return {
        "seconds": timing.spread(wall),
        "processor seconds": timing.spread(processor),  # alike where nobody else is at work
        "rows": int(np.count_nonzero(forest.rows.weights.any(axis=1))),
        "shared fraction": forest.shared_fraction,
        "padding": forest.padding_fraction,
    }


def _groups(prompt: int | None, rng: np.random.Generator) -> list[Group]:
    """Siblings see the same first page; earlier pages have become placeholders."""

    def ids(count: int) -> IntArray:
        return rng.integers(0, _VOCABULARY, count).astype(np.int32)

    def page(history: list[IntArray]) -> IntArray:
        told = sum(len(part) for part in history)
        return ids(prompt - told if prompt else int(rng.integers(*_PAGE, endpoint=True)))

    system, placeholder = ids(_SYSTEM), ids(_PLACEHOLDER)

    def episode(task: Task, intent: IntArray, first: IntArray, reward: float) -> Episode:
        history, turns = [system, intent], []
        for turn in range(_TURNS):
            prompt_ids = np.concatenate([*history, page(history) if turn else first])
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
        first = page([system, intent])
        episodes = (episode(task, intent, first, float(s % 2)) for s in range(_SIBLINGS))
        groups.append(Group(task, tuple(episodes)))
    return groups
