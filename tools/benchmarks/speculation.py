"""Benchmark of speculative decoding: turns of recorded episodes with and without draft tokens.

Engines of one and of 16 slots sample all turns of the first episodes of a training run, with the
recorded prompts. A turn starts when the previous one of its episode has finished, as in rollouts,
but without browsers. The completions with and without draft tokens are compared.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tools.benchmarks import timing
from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError
from webagent_jax.inference import Engine
from webagent_jax.logged_episodes import read_logs
from webagent_jax.policy import ModelConfig, Params, matmul, weights
from webagent_jax.types import Completion, Episode

_NUM_EPISODES = {1: 4, 16: 24}  # by slots: one slot is slow
_NUM_SPECULATIVE_TOKENS = (1, 2, 3, 4)


def run(repeats: int, policy_path: str, episodes: str) -> Iterator[dict[str, Any]]:
    """Yield one result for the engine without draft tokens, and one per number of them.

    Args:
        repeats: number of runs per measurement.
        policy_path: name or directory of the policy.
        episodes: workdir of the training with the episodes.

    Raises:
        ConfigError: the workdir has no episodes of a training run.
    """
    if not episodes:
        raise ConfigError("this benchmark replays episodes: set --episodes to a train grpo workdir")
    config, params = weights.load(policy_path)
    if matmul.is_supported():
        config = replace(config, matmul_dtype="bfloat16")
    stop_ids = ChatTokenizer(policy.resolve_dir(policy_path)).stop_ids
    for slots, num_episodes in _NUM_EPISODES.items():
        recorded = list(itertools.islice(read_logs(Path(episodes)), num_episodes))
        yield from _compare(config, params, slots, recorded, stop_ids=stop_ids, repeats=repeats)


def _compare(
    config: ModelConfig,
    params: Params,
    slots: int,
    episodes: Sequence[Episode],
    *,
    stop_ids: tuple[int, ...],
    repeats: int,
) -> Iterator[dict[str, Any]]:
    """Yield the results of one number of slots."""
    expected: list[Completion] = []
    seconds_without = 0.0
    for num_tokens in (0, *_NUM_SPECULATIVE_TOKENS):
        runs = []
        for _ in range(1 + repeats):
            measured, completions = _measure(
                config,
                params,
                slots,
                episodes,
                stop_ids=stop_ids,
                num_speculative_tokens=num_tokens,
            )
            runs.append(measured)
        result = timing.medians(runs[1:])  # without the first run, which warms up
        if not num_tokens:
            expected, seconds_without = completions, result["seconds"]
        yield {
            "name": f"{slots} slots, {num_tokens} draft tokens",
            "matmul_dtype": config.matmul_dtype,
            **result,
            "without drafts / with": seconds_without / result["seconds"],
            "equal completions": sum(
                np.array_equal(a.token_ids, b.token_ids)
                for a, b in zip(completions, expected, strict=True)
            ),
            "completions": len(completions),
        }


def _measure(
    config: ModelConfig,
    params: Params,
    slots: int,
    episodes: Sequence[Episode],
    *,
    stop_ids: tuple[int, ...],
    num_speculative_tokens: int,
) -> tuple[dict[str, float], list[Completion]]:
    """Sample all turns, each after the previous one of its episode, with a new engine.

    In a second run of an engine, the drafts would come from the same responses of the first run.

    Returns:
        Measured values by name, and the completions.
    """
    turns = [turn for episode in episodes for turn in episode.turns]
    limit = max(len(turn.completion.token_ids) for turn in turns)
    with Engine(
        config,
        params,
        slots=slots,
        max_model_len=max(len(turn.prompt_ids) for turn in turns) + limit,
        num_speculative_tokens=num_speculative_tokens,
    ) as engine:
        engine.warmup()

        def sample_turns(number: int) -> list[Completion]:
            return [
                engine.submit(
                    turn.prompt_ids,
                    max_new_tokens=limit,
                    seed=1_000 * number + index,
                    stop_ids=stop_ids,
                ).result()
                for index, turn in enumerate(episodes[number].turns)
            ]

        start = time.perf_counter()
        with ThreadPoolExecutor(len(episodes)) as threads:
            by_episode = list(threads.map(sample_turns, range(len(episodes))))
        seconds = time.perf_counter() - start
        stats = engine.stats()
    measured = {
        "seconds": seconds,
        "sampled tokens per second": stats.sampled_tokens / seconds,
        "tokens per slot and step": stats.acceptance_length,
        "decode steps": stats.decode_steps,
    }
    return measured, [completion for completions in by_episode for completion in completions]
