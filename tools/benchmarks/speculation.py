"""Benchmark of speculative decoding: turns of recorded episodes with and without draft tokens.

Engines of one and of 16 slots sample all turns of the first episodes of a training run, with the
recorded prompts. A turn starts when the previous one of its episode has finished, as in rollouts,
but without browsers. The completions with and without draft tokens are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.benchmarks import timing
from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError
from webagent_jax.inference import Engine
from webagent_jax.logged_episodes import read_logs
from webagent_jax.policy import ModelConfig, Params, matmul
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
    config, params = policy.load_hf(policy_path)
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
    turns = [turn for episode in episodes for turn in episode.turns]
    limit = max(len(turn.completion.token_ids) for turn in turns)
    max_model_len = max(len(turn.prompt_ids) for turn in turns) + limit
    expected: list[Completion] = []
    seconds_without = 0.0
    for num_tokens in (0, *_NUM_SPECULATIVE_TOKENS):
        with Engine(
            config,
            params,
            slots=slots,
            max_model_len=max_model_len,
            num_speculative_tokens=num_tokens,
        ) as engine:
            engine.warmup()
            runs: list[list[Completion]] = []
            sample = partial(_sample, engine, episodes, runs, stop_ids=stop_ids, limit=limit)
            seconds = timing.seconds(sample, repeats)
            stats = engine.stats()
        completions = runs[-1]
        if not num_tokens:
            expected, seconds_without = completions, seconds
        yield {
            "name": f"{slots} slots, {num_tokens} draft tokens",
            "matmul_dtype": config.matmul_dtype,
            "seconds": seconds,
            "without drafts / with": seconds_without / seconds,
            "sampled tokens per second": stats.sampled_tokens / len(runs) / seconds,
            "tokens per slot and step": stats.acceptance_length,
            "decode steps": stats.decode_steps / len(runs),
            "equal completions": sum(
                np.array_equal(a.token_ids, b.token_ids)
                for a, b in zip(completions, expected, strict=True)
            ),
            "completions": len(completions),
        }


def _sample(
    engine: Engine,
    episodes: Sequence[Episode],
    runs: list[list[Completion]],
    *,
    stop_ids: tuple[int, ...],
    limit: int,
) -> None:
    """Sample all turns of the episodes, each after the previous one, and add them to `runs`."""
    engine.sleep()  # empties the prefix cache
    engine.wake_up()

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

    with ThreadPoolExecutor(len(episodes)) as threads:
        by_episode = threads.map(sample_turns, range(len(episodes)))
        runs.append([completion for completions in by_episode for completion in completions])
