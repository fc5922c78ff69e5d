"""One M-GRPO update: forest rows against one row per turn, and against google-tunix.

The same episodes, the same gradient (the largest difference is told), once with shared prefixes and
once without. Where tunix is installed, its GRPO step and ours take the same plain rows, in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tools.benchmarks import baseline, timing
from tools.benchmarks.episodes import Shape, branches
from webagent_jax import learn, policy
from webagent_jax.config import GRPOConfig, OptimizerConfig
from webagent_jax.learn import Branch
from webagent_jax.policy import ModelConfig, flops
from webagent_jax.types import ForestRows

MODEL = ModelConfig(
    vocab_size=2048, d_model=128, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32, d_ff=512
)
_PEER_ROWS, _PEER_PROMPT, _PEER_RESPONSE = 8, 256, 64
_OPTIMIZER = learn.make_optimizer(OptimizerConfig(learning_rate=1e-5), 1_000)
_GRPO = GRPOConfig(kl_beta=0.04)
_SUITE = (  # (shape, tokens of a row)
    (Shape(system=300), 2_560),
    (Shape(system=1_300), 4_096),
    (Shape(system=1_300), 8_192),
)


def run(repeats: int, peer_python: str) -> Iterator[dict[str, Any]]:
    """A result per comparison. `peer_python` belongs to an environment with google-tunix."""
    for shape, row_tokens in _SUITE:
        yield _forest_against_turns(shape, row_tokens, repeats)
    if peer_python:
        yield _against_tunix(peer_python, repeats)


# --- forest rows against one row per turn --------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    rows: int
    tokens: int  # of these rows, padding included
    flops: float  # of tokens that are no padding: forward, backward and the reference
    seconds: float
    bytes: int  # that the program holds


def _forest_against_turns(shape: Shape, row_tokens: int, repeats: int) -> dict[str, Any]:
    turns = branches(shape, MODEL.vocab_size, seed=0)
    forest = learn.build(turns, row_tokens=row_tokens).rows
    plain = _one_row_per_turn(turns)
    together = max(1, row_tokens // plain.tokens.shape[1])  # as many tokens a microbatch
    a, b = _measured(forest, 1, repeats), _measured(plain, together, repeats)
    one, other = _gradient(forest), _gradient(plain)
    largest = jax.tree.map(lambda x, y: jnp.max(jnp.abs(x - y)), one, other)
    return {
        "name": f"update: system of {shape.system}, forest rows of {row_tokens}",
        "forest": asdict(a),
        "row per turn": asdict(b),
        "row per turn / forest": {
            "tokens": b.tokens / a.tokens,
            "flops": b.flops / a.flops,
            "seconds": b.seconds / a.seconds,
            "bytes": b.bytes / a.bytes,
        },
        "largest difference of the gradients": float(max(jax.tree.leaves(largest))),
        "norm of the gradient": float(optax.tree.norm(one)),
    }


def _one_row_per_turn(turns: Sequence[Branch]) -> ForestRows:
    """As others lay them out; the rows are as long as the longest turn, no longer."""
    longest = max(len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
    rows = [learn.build([turn], row_tokens=longest).rows for turn in turns]
    return _concatenated(rows)


def _concatenated(parts: Sequence[ForestRows]) -> ForestRows:
    joined: ForestRows = jax.tree.map(lambda *rows: np.concatenate(rows), *parts)
    return joined


def _measured(rows: ForestRows, microbatch: int, repeats: int) -> _Side:
    filled = int(np.count_nonzero(rows.weights.any(axis=1)))  # rows without weight cost nothing
    count = len(rows.tokens)
    if count % microbatch:  # whole microbatches, the last rows empty
        empty = jax.tree.map(lambda x: np.zeros_like(x[: -count % microbatch]), rows)
        rows = _concatenated([rows, replace(empty, ends=empty.ends + 1)])
    params = policy.init(MODEL, jax.random.key(0))
    state = learn.init_state(params, _OPTIMIZER)

    def update() -> Any:
        nonlocal state
        state, _ = learn.grpo_update(
            MODEL, _OPTIMIZER, state, rows, grpo=_GRPO, ref_params=params, microbatch=microbatch
        )
        return state

    parts = jax.tree.map(lambda x: np.reshape(x, (-1, microbatch, *x.shape[1:])), rows)
    program = learn.lower_grpo_update(
        MODEL, _OPTIMIZER, state, parts, grpo=_GRPO, ref_params=params
    )
    return _Side(
        rows=filled,
        tokens=filled * rows.tokens.shape[1],
        flops=_work(rows),
        seconds=timing.seconds(update, repeats),
        bytes=timing.program_bytes(program.compile()),
    )


def _work(rows: ForestRows) -> float:
    """Forward four times: one for the policy, two for its backward pass, one for the reference."""
    index = np.arange(rows.tokens.shape[1])
    filled = rows.ends > index + 1  # a leaf counts as padding does: one pair
    pairs = int(np.sum((rows.ends - index)[filled]))
    scored = int(np.count_nonzero(rows.weights))
    layers = flops.layers(MODEL, int(filled.sum()), pairs)
    return 4 * layers + 5 * flops.head(MODEL, scored)  # logits are computed again


def _gradient(rows: ForestRows) -> policy.Params:
    params = policy.init(MODEL, jax.random.key(0))

    def objective(params: policy.Params, rows: ForestRows) -> tuple[Any, dict[str, Any]]:
        logp = policy.score(MODEL, params, rows).logp
        loss, _ = learn.grpo_loss(
            logp,
            rows.behaviour_logp,
            rows.advantages,
            rows.weights,
            surrogate=learn.Surrogate(clip_low=_GRPO.clip_low, clip_high=_GRPO.clip_high),
        )
        return loss, {"loss": loss}

    parts = jax.tree.map(lambda x: x[:, None], rows)
    gradient, _ = jax.jit(lambda params: learn.accumulate(objective, params, parts))(params)
    return gradient


# --- against google-tunix ------------------------------------------------------------------------


def _against_tunix(peer_python: str, repeats: int) -> dict[str, Any]:
    """One GRPO step with its reference log-probabilities on 8 plain rows of 256 + 64 tokens."""
    rng = np.random.default_rng(0)

    def ids(count: int) -> Any:
        return rng.integers(0, baseline.MODEL.vocab_size, count).astype(np.int32)

    logp = np.full(_PEER_RESPONSE, -7.6, np.float32)
    weight = 1 / (_PEER_ROWS * _PEER_RESPONSE)
    length = _PEER_PROMPT + _PEER_RESPONSE
    rows = _concatenated(
        [
            learn.build(
                [Branch(ids(_PEER_PROMPT), ids(_PEER_RESPONSE), logp, weight=weight, advantage=a)],
                row_tokens=length,
            ).rows
            for a in rng.choice([-1.0, 1.0], _PEER_ROWS)
        ]
    )
    params = policy.init(baseline.MODEL, jax.random.key(0))
    state = learn.init_state(params, _OPTIMIZER)

    def update() -> Any:
        nonlocal state
        state, _ = learn.grpo_update(
            baseline.MODEL,
            _OPTIMIZER,
            state,
            rows,
            grpo=_GRPO,
            ref_params=params,
            microbatch=_PEER_ROWS,
        )
        return state

    before = timing.seconds(update, repeats)
    theirs = baseline.ask(
        peer_python,
        "tunix/grpo_step.py",
        baseline.sizes()
        | {
            "rows": _PEER_ROWS,
            "prompt": _PEER_PROMPT,
            "response": _PEER_RESPONSE,
            "repeats": repeats,
        },
    )
    ours = min(before, timing.seconds(update, repeats))
    seconds = theirs["step_seconds"] + theirs["reference_seconds"]
    tokens = _PEER_ROWS * length
    return {
        "name": f"update: {_PEER_ROWS} plain rows of {length}, against google-tunix",
        "ours": {"seconds": ours, "tokens_per_second": tokens / ours},
        "tunix": {"seconds": seconds, "tokens_per_second": tokens / seconds, **theirs},
        "tunix / ours": {
            "seconds": seconds / ours,
            "seconds without their reference pass": theirs["step_seconds"] / ours,
        },
    }
