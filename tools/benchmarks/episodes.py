"""Synthetic groups of episodes: random tokens in the shapes of web agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from webagent_jax.learn import Branch
from webagent_jax.types import IntArray


@dataclass(frozen=True)
class Shape:
    """Shape of the episodes of a group."""

    system: int = 300  # tokens of system prompt and task
    turns: int = 10  # number of turns per episode
    page: tuple[int, int] = (500, 1_000)  # minimum and maximum tokens of a page; random per turn
    placeholder: int = 12  # tokens of the placeholder for an earlier page
    response: int = 60  # tokens of a response
    group: int = 8  # number of episodes


def branches(shape: Shape, vocab_size: int, seed: int) -> list[Branch]:
    """Return the turns of one group; its episodes share only the first prompt."""
    rng = np.random.default_rng(seed)

    def ids(count: int) -> IntArray:
        return rng.integers(0, vocab_size, count).astype(np.int32)

    def random_page() -> IntArray:
        return ids(int(rng.integers(shape.page[0], shape.page[1] + 1)))

    system, placeholder, first_page = ids(shape.system), ids(shape.placeholder), random_page()
    weight = 1 / (shape.group * shape.turns * shape.response)

    def episode() -> Iterator[Branch]:
        history = [system]
        advantage = float(rng.choice([-1.0, 1.0]))
        for turn in range(shape.turns):
            response = ids(shape.response)
            prompt = np.concatenate([*history, random_page() if turn else first_page])
            logp = np.full(shape.response, -np.log(vocab_size), np.float32)
            yield Branch(prompt, response, logp, weight=weight, advantage=advantage)
            history += [placeholder, response]

    return [branch for _ in range(shape.group) for branch in episode()]
