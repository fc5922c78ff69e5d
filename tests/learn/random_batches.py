"""Random batches of episodes, in the types of the package and of the reference implementation.

The policy is a table of logits, one row per response token of the batch. The id of a response
token is its row of the table; `labels` maps these rows to the V tokens of the vocabulary.
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
MAX_TOKENS = 320  # maximum number of response tokens per batch; one shape compiles once
TASK = Task("t", "s", ("a",), "do", "http://localhost/")
# Token ids that occur in no response.
PLACEHOLDER, HEADER, SYSTEM, FIRST_PAGE_ID = 1_000, 1_001, 1_002, 1_003


@dataclass
class Batch:
    reference_groups: list[list[reference.Episode]]
    groups: list[Group]
    logits: np.ndarray  # float32 [MAX_TOKENS, V]
    labels: np.ndarray  # int32 [MAX_TOKENS]
    ref_logp: np.ndarray  # float32 [MAX_TOKENS]
    prox_logp: np.ndarray  # float32 [MAX_TOKENS]

    @property
    def num_tokens(self) -> int:
        return sum(
            len(turn.tokens)
            for group in self.reference_groups
            for episode in group
            for turn in episode.turns
        )


@st.composite
def batches(draw, *, off_policy: bool = False, thoughts: bool = False) -> Batch:
    """Draw one to three groups of two to four scored episodes plus one without a reward."""
    turn_lengths = st.lists(st.integers(1, 6), min_size=1, max_size=3)
    episode_shape = st.tuples(st.integers(0, 1), turn_lengths, st.booleans())
    batch_shape = draw(
        st.lists(st.lists(episode_shape, min_size=2, max_size=4), min_size=1, max_size=3)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def make_turn(length: int) -> reference.Turn:
        logits = rng.normal(size=(length, V)).astype(np.float32).astype(np.float64)
        tokens = [int(token) for token in rng.integers(0, V, length)]
        logp = [reference.log_softmax(row)[t] for row, t in zip(logits, tokens, strict=True)]

        def perturb_logp(spread: float) -> list[float]:
            return [float(np.float32(x + spread * rng.normal())) for x in logp]

        # A spread of 0.5 moves log-ratios beyond both clip bounds and beyond the cap.
        prox = perturb_logp(0.5) if off_policy else []
        thought = int(rng.integers(0, length)) if thoughts else 0
        behavior, ref = perturb_logp(0.5), perturb_logp(0.5)
        page = int(rng.integers(0, 3))
        return reference.Turn(logits, tokens, behavior, ref, prox, thought, page)

    return make_batch(
        [
            [
                reference.Episode(float(reward), [make_turn(n) for n in turn_lengths], truncated)
                for reward, turn_lengths, truncated in group
            ]
            for group in batch_shape
        ]
    )


def make_batch(reference_groups: list[list[reference.Episode]]) -> Batch:
    reference_turns = [
        turn for group in reference_groups for episode in group for turn in episode.turns
    ]
    token_ids = iter(range(MAX_TOKENS))
    page_ids = iter(range(FIRST_PAGE_ID, FIRST_PAGE_ID + 10_000))

    def make_turn(turn: reference.Turn, history: list[int], page: list[int]) -> Turn:
        ids = [next(token_ids) for _ in turn.tokens]
        completion = Completion(
            np.array(ids, np.int32),
            np.array(turn.behavior_logp, np.float32),
            np.zeros(len(ids), np.int32),
            "stop",
        )
        prompt = np.array([*history, *page, HEADER], np.int32)
        history += [PLACEHOLDER, HEADER, *ids]
        thought = "</think>" if turn.thought else ""
        observation = Observation(f"page {turn.page}", "")
        return Turn(prompt, completion, thought, ParseError("none"), observation)

    def make_episode(episode: reference.Episode, first_page: list[int]) -> Episode:
        history = [SYSTEM]
        pages = [first_page, *([next(page_ids), next(page_ids)] for _ in episode.turns[1:])]
        turns = tuple(
            make_turn(turn, history, page) for turn, page in zip(episode.turns, pages, strict=True)
        )
        return Episode(
            TASK, "do", turns, episode.reward, Outcome.FAILURE, truncated=episode.truncated
        )

    groups = []
    for group in reference_groups:
        first_page = [next(page_ids), next(page_ids), next(page_ids)]
        episodes = [make_episode(episode, first_page) for episode in group]
        infra_episode = Episode(TASK, "do", episodes[0].turns, None, Outcome.INFRA)
        groups.append(Group(TASK, (episodes[0], infra_episode, *episodes[1:])))

    def make_column(values, shape=(), dtype=np.float32) -> np.ndarray:
        column = np.zeros((MAX_TOKENS, *shape), dtype)
        entries = np.concatenate(values)
        column[: len(entries)] = entries
        return column

    return Batch(
        reference_groups,
        groups,
        logits=make_column([turn.logits for turn in reference_turns], (V,)),
        labels=make_column([turn.tokens for turn in reference_turns], dtype=np.int32),
        ref_logp=make_column([turn.ref_logp for turn in reference_turns]),
        prox_logp=make_column([turn.prox_logp or turn.behavior_logp for turn in reference_turns]),
    )


def make_decoder(batch: Batch):
    """Return a function from token ids to text; each thought ends with its last token."""
    turns = [
        turn for group in batch.reference_groups for episode in group for turn in episode.turns
    ]
    thought_ends, num_tokens = set(), 0
    for turn in turns:
        if turn.thought:
            thought_ends.add(num_tokens + turn.thought - 1)
        num_tokens += len(turn.tokens)
    return lambda ids: "".join("</think>" if int(i) in thought_ends else "." for i in ids)


@partial(jax.jit, static_argnames=("surrogate",))
def loss_and_grad(logits, labels, ref_logp, rows: ForestRows, *, surrogate: PolicyLossConfig):
    """Return loss and gradient of a table of logits [MAX_TOKENS, V]; token ids are table rows."""
    indices = jnp.take_along_axis(rows.tokens, rows.target_indices, axis=1) % MAX_TOKENS

    def loss(logits):
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]
        ref = None if surrogate.kl_beta == 0 else ref_logp[indices]
        return grpo_loss(
            logp[indices],
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            config=surrogate,
            prox_logp=rows.prox_logp,
            ref_logp=ref,
        )

    return jax.value_and_grad(loss, has_aux=True)(logits)
