"""Benchmark of one M-GRPO step: forest rows, one row per turn, and google-tunix.

Both layouts use the same episodes and have the same gradient; the result contains the largest
difference. Forest rows share prefixes. With google-tunix, its GRPO step and ours run on the same
plain rows, alternately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
_BASELINE_ROWS, _BASELINE_PROMPT, _BASELINE_RESPONSE = 8, 256, 64
_OPTIMIZER = learn.make_optimizer(OptimizerConfig(learning_rate=1e-5), 1_000)
_GRPO = GRPOConfig(kl_beta=0.04)
# Shape of the episodes and length of the forest rows.
_SUITE = (
    (Shape(system=300), 2_560),
    (Shape(system=1_300), 4_096),
    (Shape(system=1_300), 8_192),
)


def run(repeats: int, baseline_python: str) -> Iterator[dict[str, Any]]:
    """Yield one result per shape of episodes, and one for google-tunix.

    Args:
        repeats: number of runs per measurement.
        baseline_python: Python interpreter with google-tunix; empty skips it.
    """
    for shape, row_tokens in _SUITE:
        yield _compare_layouts(shape, row_tokens, repeats)
    if baseline_python:
        yield _compare_with_tunix(baseline_python, repeats)


# --- forest rows and one row per turn ------------------------------------------------------------


@dataclass(frozen=True)
class _Result:
    """Cost of a step with one layout."""

    rows: int  # number of rows with loss weights
    tokens: int  # tokens of these rows, including padding
    flops: float  # FLOPs without padding: forward, backward and reference
    seconds: float  # duration of the step
    bytes: int  # memory of the program


def _compare_layouts(shape: Shape, row_tokens: int, repeats: int) -> dict[str, Any]:
    turns = branches(shape, MODEL.vocab_size, seed=0)
    forest = learn.pack_branches(turns, row_tokens=row_tokens).rows
    plain = _one_row_per_turn(turns)
    # Microbatches of both layouts have about the same number of tokens.
    microbatch = max(1, row_tokens // plain.tokens.shape[1])
    a, b = _measure(forest, 1, repeats), _measure(plain, microbatch, repeats)
    forest_gradient, plain_gradient = _gradient(forest), _gradient(plain)
    differences = jax.tree.map(
        lambda x, y: jnp.max(jnp.abs(x - y)), forest_gradient, plain_gradient
    )
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
        "largest difference of the gradients": float(max(jax.tree.leaves(differences))),
        "norm of the gradient": float(optax.tree.norm(forest_gradient)),
    }


def _one_row_per_turn(turns: Sequence[Branch]) -> ForestRows:
    """Return the usual layout: one row per turn, as long as the longest turn."""
    longest = max(len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
    rows = _concatenate([learn.pack_branches([turn], row_tokens=longest).rows for turn in turns])
    # Every target costs logits: `pack_branches` allocates more of them than one response has.
    num_targets = 64 * math.ceil(max(len(turn.response_ids) for turn in turns) / 64)
    names = ("target_indices", "loss_weights", "advantages", "behavior_logp", "prox_logp")
    return replace(rows, **{name: getattr(rows, name)[:, :num_targets] for name in names})


def _concatenate(parts: Sequence[ForestRows]) -> ForestRows:
    result: ForestRows = jax.tree.map(lambda *rows: np.concatenate(rows), *parts)
    return result


def _measure(rows: ForestRows, microbatch: int, repeats: int) -> _Result:
    # Rows without loss weights cost nothing.
    num_rows = int(np.count_nonzero(rows.loss_weights.any(axis=1)))
    count = len(rows.tokens)
    if count % microbatch:  # pad with empty rows to full microbatches
        padding = jax.tree.map(lambda x: np.zeros_like(x[: -count % microbatch]), rows)
        rows = _concatenate([rows, replace(padding, subtree_ends=padding.subtree_ends + 1)])
    update, program = _make_update(MODEL, rows, microbatch)
    return _Result(
        rows=num_rows,
        tokens=num_rows * rows.tokens.shape[1],
        flops=_count_flops(rows),
        seconds=timing.seconds(update, repeats),
        bytes=timing.program_bytes(program.compile()),
    )


def _make_update(
    model: ModelConfig, rows: ForestRows, microbatch: int
) -> tuple[Callable[[], Any], jax.stages.Lowered]:
    """Return a function that runs an M-GRPO step with a reference policy, and its program."""
    params = policy.init(model, jax.random.key(0))
    state = learn.init_state(params, _OPTIMIZER)
    train_step = learn.make_train_step(learn.GRPOLoss.from_config(model, _GRPO), _OPTIMIZER)
    frozen = learn.FrozenParams(reference=params)
    parts = learn.split_microbatches(rows, microbatch)

    def update() -> Any:
        nonlocal state
        state, _ = train_step(state, frozen, parts)
        return state

    return update, train_step.lower(state, frozen, parts)


def _count_flops(rows: ForestRows) -> float:
    """Return the FLOPs of four forward passes: policy, backward (two), reference."""
    index = np.arange(rows.tokens.shape[1])
    # A leaf counts one pair, like padding, so the mask excludes both.
    has_descendants = rows.subtree_ends > index + 1
    pairs = int(np.sum((rows.subtree_ends - index)[has_descendants]))
    num_responses = int(np.count_nonzero(rows.loss_weights))
    layers = flops.layer_flops(MODEL, int(has_descendants.sum()), pairs)
    # The backward pass recomputes the logits.
    return 4 * layers + 5 * flops.logits_flops(MODEL, num_responses)


def _gradient(rows: ForestRows) -> policy.Params:
    params = policy.init(MODEL, jax.random.key(0))

    def objective(params: policy.Params, rows: ForestRows) -> tuple[Any, dict[str, Any]]:
        logp = policy.score(MODEL, params, rows).logp
        loss, _ = learn.grpo_loss(
            logp,
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            config=learn.PolicyLossConfig(clip_low=_GRPO.clip_low, clip_high=_GRPO.clip_high),
        )
        return loss, {"loss": loss}

    parts = jax.tree.map(lambda x: x[:, None], rows)
    gradient, _ = jax.jit(lambda params: learn.accumulate_gradients(objective, params, parts))(
        params
    )
    return gradient


# --- google-tunix --------------------------------------------------------------------------------


def _compare_with_tunix(baseline_python: str, repeats: int) -> dict[str, Any]:
    """Return the times of a GRPO step with reference scoring on 8 rows of 256 + 64 tokens."""
    rng = np.random.default_rng(0)

    def ids(count: int) -> Any:
        return rng.integers(0, baseline.MODEL.vocab_size, count).astype(np.int32)

    logp = np.full(_BASELINE_RESPONSE, -7.6, np.float32)
    weight = 1 / (_BASELINE_ROWS * _BASELINE_RESPONSE)
    length = _BASELINE_PROMPT + _BASELINE_RESPONSE
    rows = _concatenate(
        [
            learn.pack_branches(
                [
                    Branch(
                        ids(_BASELINE_PROMPT),
                        ids(_BASELINE_RESPONSE),
                        logp,
                        weight=weight,
                        advantage=a,
                    )
                ],
                row_tokens=length,
            ).rows
            for a in rng.choice([-1.0, 1.0], _BASELINE_ROWS)
        ]
    )
    update, _ = _make_update(baseline.MODEL, rows, _BASELINE_ROWS)
    first_seconds = timing.seconds(update, repeats)
    tunix = baseline.run_script(
        baseline_python,
        "tunix/grpo_step.py",
        baseline.sizes()
        | {
            "rows": _BASELINE_ROWS,
            "prompt": _BASELINE_PROMPT,
            "response": _BASELINE_RESPONSE,
            "repeats": repeats,
        },
    )
    # Before and after the baseline, because the speed of the machine varies.
    our_seconds = (first_seconds + timing.seconds(update, repeats)) / 2
    seconds = tunix["step_seconds"] + tunix["reference_seconds"]
    tokens = _BASELINE_ROWS * length
    return {
        "name": f"update: {_BASELINE_ROWS} plain rows of {length}, against google-tunix",
        "ours": {"seconds": our_seconds, "tokens_per_second": tokens / our_seconds},
        "tunix": {"seconds": seconds, "tokens_per_second": tokens / seconds, **tunix},
        "tunix / ours": {
            "seconds": seconds / our_seconds,
            "seconds without their reference pass": tunix["step_seconds"] / our_seconds,
        },
    }
