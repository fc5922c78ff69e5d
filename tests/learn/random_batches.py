"""Drawn batches of episodes, for the package and for its slow twin at once.

The policy is a table of logits, a row per response token of the batch. So that every token of a
forest row can find its own, the ids of response tokens count through the batch; which of the V
tokens of the vocabulary they stand for is in `labels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np

from tests import reference
from webagent_jax.learn import PolicyLossConfig, grpo_loss
from webagent_jax.types import (
    Completion,
    Episode,
    ForestRows,
    Group,
    Observation,
    Outcome,
    ParseError,
    Task,
    Turn,
)

V = 5
TOKENS = 320  # response tokens of a batch at most: one shape, one compilation
TASK = Task("t", "s", ("a",), "do", "http://localhost/")
PLACEHOLDER, HEADER, SYSTEM, PAGES = 1_000, 1_001, 1_002, 1_003  # ids that no response has


@dataclass
class Batch:
    twin: list[list[reference.Episode]]
    groups: list[Group]
    logits: np.ndarray  # float32 [TOKENS, V]
    labels: np.ndarray  # int32 [TOKENS]
    ref_logp: np.ndarray  # float32 [TOKENS]
    prox_logp: np.ndarray  # float32 [TOKENS]

    @property
    def tokens(self) -> int:
        return sum(len(t.tokens) for group in self.twin for e in group for t in e.turns)


@st.composite
def batches(draw, *, off_policy: bool = False, thoughts: bool = False) -> Batch:
    """One to three groups of two to four episodes with a reward, and one without in between."""
    lengths = st.lists(st.integers(1, 6), min_size=1, max_size=3)
    episode = st.tuples(st.integers(0, 1), lengths, st.booleans())
    shape = draw(st.lists(st.lists(episode, min_size=2, max_size=4), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def turn(length: int) -> reference.Turn:
        logits = rng.normal(size=(length, V)).astype(np.float32).astype(np.float64)
        tokens = [int(token) for token in rng.integers(0, V, length)]
        logp = [reference.log_softmax(row)[t] for row, t in zip(logits, tokens, strict=True)]

        def near(spread: float) -> list[float]:
            return [float(np.float32(x + spread * rng.normal())) for x in logp]

        # 0.5 spreads the log-ratios over both bounds of the clip, and over the cap.
        prox = near(0.5) if off_policy else []
        thought = int(rng.integers(0, length)) if thoughts else 0
        return reference.Turn(logits, tokens, near(0.5), near(0.5), prox, thought)

    return as_batch(
        [
            [
                reference.Episode(float(reward), [turn(n) for n in lengths], cut)
                for reward, lengths, cut in group
            ]
            for group in shape
        ]
    )


def as_batch(twin: list[list[reference.Episode]]) -> Batch:
    turns = [turn for group in twin for episode in group for turn in episode.turns]
    numbers = iter(range(TOKENS))
    fresh = iter(range(PAGES, PAGES + 10_000))

    def played(turn: reference.Turn, history: list[int], page: list[int]) -> Turn:
        ids = [next(numbers) for _ in turn.tokens]
        completion = Completion(
            np.array(ids, np.int32),
            np.array(turn.behavior_logp, np.float32),
            np.zeros(len(ids), np.int32),
            "stop",
        )
        prompt = np.array([*history, *page, HEADER], np.int32)
        history += [PLACEHOLDER, HEADER, *ids]
        thought = "</think>" if turn.thought else ""
        return Turn(prompt, completion, thought, ParseError("none"), Observation("", ""))

    def episode(twin: reference.Episode, first: list[int]) -> Episode:
        history = [SYSTEM]
        pages = [first, *([next(fresh), next(fresh)] for _ in twin.turns[1:])]
        played_turns = tuple(
            played(t, history, page) for t, page in zip(twin.turns, pages, strict=True)
        )
        return Episode(
            TASK, "do", played_turns, twin.reward, Outcome.FAILURE, truncated=twin.truncated
        )

    groups = []
    for group in twin:
        first = [next(fresh), next(fresh), next(fresh)]
        siblings = [episode(e, first) for e in group]
        lost = Episode(TASK, "do", siblings[0].turns, None, Outcome.INFRA)
        groups.append(Group(TASK, (siblings[0], lost, *siblings[1:])))

    def column(values, shape=(), dtype=np.float32) -> np.ndarray:
        whole = np.zeros((TOKENS, *shape), dtype)
        joined = np.concatenate(values)
        whole[: len(joined)] = joined
        return whole

    return Batch(
        twin,
        groups,
        logits=column([t.logits for t in turns], (V,)),
        labels=column([t.tokens for t in turns], dtype=np.int32),
        ref_logp=column([t.ref_logp for t in turns]),
        prox_logp=column([t.prox_logp or t.behavior_logp for t in turns]),
    )


def decode(batch: Batch):
    """Ids to text: a thought ends with its last token."""
    turns = [turn for group in batch.twin for episode in group for turn in episode.turns]
    ends, count = set(), 0
    for turn in turns:
        if turn.thought:
            ends.add(count + turn.thought - 1)
        count += len(turn.tokens)
    return lambda ids: "".join("</think>" if int(i) in ends else "." for i in ids)


@partial(jax.jit, static_argnames=("surrogate",))
def loss_and_grad(logits, labels, ref_logp, rows: ForestRows, *, surrogate: PolicyLossConfig):
    """Of the table of logits [TOKENS, V], by rows whose tokens are numbers in it."""
    numbers = jnp.take_along_axis(rows.tokens, rows.target_indices, axis=1) % TOKENS

    def loss(logits):
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]
        ref = None if surrogate.kl_beta == 0 else ref_logp[numbers]
        return grpo_loss(
            logp[numbers],
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            surrogate=surrogate,
            prox_logp=rows.prox_logp,
            ref_logp=ref,
        )

    return jax.value_and_grad(loss, has_aux=True)(logits)
