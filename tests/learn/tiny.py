"""Small policy model that compiles in seconds, with params made without compilation."""

from __future__ import annotations

import jax
import numpy as np

from webagent_jax import learn, policy

MODEL = policy.ModelConfig(
    vocab_size=61, d_model=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, d_ff=32
)


def make_params(seed: int) -> policy.transformer.Params:
    rng = np.random.default_rng(seed)
    shapes = policy.abstract_params(MODEL)
    return jax.tree.map(lambda x: rng.normal(0.0, 0.2, x.shape).astype(x.dtype), shapes)


def run_step(loss_fn, optimizer, state, rows, frozen=None, *, microbatch=1, mesh=None):
    """Return the state after one optimizer step and its metrics."""
    train_step = learn.make_train_step(loss_fn, optimizer, mesh)
    microbatches = learn.split_microbatches(rows, microbatch, mesh)
    state, sums = train_step(state, frozen or learn.FrozenParams(), microbatches)
    return state, learn.fetch_metrics(sums)
