"""Run in a process of its own with 8 CPU devices: one update on meshes against one on one device.

python -m tests.learn.sharded DATAxFSDPxTENSOR ...
prints JSON, by mesh: the largest differences, how many params are cut, whether the cuts were kept.
"""

from __future__ import annotations

import json
import sys
import tempfile

import jax
import numpy as np

from tests.learn.tiny import run_step
from webagent_jax import learn, policy
from webagent_jax.config import GRPOConfig, OptimizerConfig
from webagent_jax.policy import lora, sharding

MODEL = policy.ModelConfig(
    vocab_size=64, d_model=32, num_layers=2, num_heads=8, num_kv_heads=2, head_dim=8, d_ff=48
)
OPTIMIZER = learn.make_optimizer(OptimizerConfig(learning_rate=0.001, max_grad_norm=0.1), 10)
GRPO = GRPOConfig(kl_beta=0.1)
DECOUPLED = GRPOConfig(kl_beta=0.1, kl_estimator="k1", importance_weight_cap=0.5)
MICROBATCH = 8


def make_rows():
    rng = np.random.default_rng(0)

    def ids(count):
        return rng.integers(0, MODEL.vocab_size, count).astype(np.int32)

    branches = [
        learn.Branch(ids(9), ids(5), -rng.random(5, np.float32) - 3, weight=1 / 200, advantage=a)
        for a in rng.normal(size=40)
    ]
    return learn.pack_branches(branches, row_tokens=32, row_multiple=MICROBATCH).rows


def updated(state, reference, mesh=None, base=None, *, grpo=GRPO, rows=None):
    return run_step(
        learn.GRPOLoss.from_config(MODEL, grpo, mesh=mesh),
        OPTIMIZER,
        state,
        make_rows() if rows is None else rows,
        learn.FrozenParams(base, reference),
        microbatch=MICROBATCH,
        mesh=mesh,
    )


def main(meshes):
    params = policy.init(MODEL, jax.random.key(0))
    reference = jax.tree.map(lambda x: x * 1.1, params)
    alone = updated(learn.init_state(params, OPTIMIZER), reference)
    found = {
        name: differences(params, reference, alone, sizes=map(int, name.split("x")))
        for name in meshes
    }
    return {
        **found,
        "adapters": differences_of_adapters(params),
        "decoupled": differences_of_decoupled(params, reference),
    }


def apart(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def differences_of_adapters(params):
    adapters = lora.init(params, jax.random.key(1), rank=2, projections=lora.PROJECTIONS)
    adapters = jax.tree.map(lambda x: x + 0.01, adapters)

    def trained(mesh, place):
        state = learn.init_state(place(adapters), OPTIMIZER)
        base = lora.FrozenBase(place(params), 0.5)
        return updated(state, base.params, mesh, base)

    alone, alone_metrics = trained(None, lambda tree: tree)
    mesh = sharding.make_mesh(2, 2, 2)
    state, metrics = trained(
        mesh, lambda tree: jax.device_put(tree, sharding.param_shardings(tree, mesh))
    )
    return {
        "loss": apart(metrics["loss"], alone_metrics["loss"]),
        "grad_norm": apart(metrics["grad_norm"], alone_metrics["grad_norm"]),
        "params": max(jax.tree.leaves(jax.tree.map(apart, state.params, alone.params))),
        "cut": sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.params)),
    }


def differences_of_decoupled(params, reference):
    """An update against a proximal policy that is not the one that is updated."""

    def trained(mesh, place):
        rows = learn.compute_prox_logp(
            MODEL, place(reference), make_rows(), microbatch=MICROBATCH, mesh=mesh
        )
        state = learn.init_state(place(params), OPTIMIZER)
        state, metrics = updated(state, place(reference), mesh, grpo=DECOUPLED, rows=rows)
        return rows.prox_logp, state, metrics

    alone_logp, alone, alone_metrics = trained(None, lambda tree: tree)
    mesh = sharding.make_mesh(2, 2, 2)
    logp, state, metrics = trained(
        mesh, lambda tree: jax.device_put(tree, sharding.param_shardings(tree, mesh))
    )
    return {
        "logp": apart(logp, alone_logp),
        "metrics": max(apart(metrics[name], alone_metrics[name]) for name in metrics),
        "importance_capped_fraction": alone_metrics["importance_capped_fraction"],
        "params": max(jax.tree.leaves(jax.tree.map(apart, state.params, alone.params))),
    }


def differences(params, reference, expected, *, sizes):
    alone, alone_metrics = expected
    mesh = sharding.make_mesh(*sizes)
    at = sharding.param_shardings(params, mesh)
    state = learn.init_state(jax.device_put(params, at), OPTIMIZER)
    reference = jax.device_put(reference, at)
    born = policy.init(MODEL, jax.random.key(0), mesh)
    with tempfile.TemporaryDirectory() as folder:
        policy.save_hf(folder, MODEL, params)
        _, read = policy.load_hf(folder, mesh=mesh)
    state, metrics = updated(state, reference, mesh)

    def in_place(params):
        leaves = zip(jax.tree.leaves(params), jax.tree.leaves(at), strict=True)
        return all(leaf.sharding.is_equivalent_to(wanted, leaf.ndim) for leaf, wanted in leaves)

    return {
        "born": max(jax.tree.leaves(jax.tree.map(apart, born, params))),
        "born_in_place": in_place(born),
        "read": max(jax.tree.leaves(jax.tree.map(apart, read, params))),
        "read_in_place": in_place(read),
        "loss": apart(metrics["loss"], alone_metrics["loss"]),
        "grad_norm": apart(metrics["grad_norm"], alone_metrics["grad_norm"]),
        "params": max(jax.tree.leaves(jax.tree.map(apart, state.params, alone.params))),
        "moments": max(jax.tree.leaves(jax.tree.map(apart, state.opt_state, alone.opt_state))),
        "cut": sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.params)),
        "kept": in_place(state.params),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])))
