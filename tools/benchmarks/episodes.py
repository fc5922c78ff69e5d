"""Groups of episodes of the shapes that web agents have, of random tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from webagent_jax.learn import Branch
from webagent_jax.types import IntArray


@dataclass(frozen=True)
class Shape:
    """Tokens of each part of an episode."""

    system: int = 300  # prompt and task
    turns: int = 10
    page: tuple[int, int] = (500, 1_000)  # at least and at most; drawn for every turn
    placeholder: int = 12  # what stays of a page that is past
    response: int = 60
    group: int = 8


def branches(shape: Shape, vocab_size: int, seed: int) -> list[Branch]:
    """One group: siblings see the same first page and go their own ways from there."""
    rng = np.random.default_rng(seed)

    def ids(count: int) -> IntArray:
        return rng.integers(0, vocab_size, count).astype(np.int32)

    def page() -> IntArray:
        return ids(int(rng.integers(shape.page[0], shape.page[1] + 1)))

    system, placeholder, first = ids(shape.system), ids(shape.placeholder), page()
    weight = 1 / (shape.group * shape.turns * shape.response)

    def episode() -> Iterator[Branch]:
        history = [system]
        advantage = float(rng.choice([-1.0, 1.0]))
        for turn in range(shape.turns):
            response = ids(shape.response)
            prompt = np.concatenate([*history, first if turn == 0 else page()])
            logp = np.full(shape.response, -np.log(vocab_size), np.float32)
            yield Branch(prompt, response, logp, weight=weight, advantage=advantage)
            history += [placeholder, response]

    return [branch for _ in range(shape.group) for branch in episode()]
