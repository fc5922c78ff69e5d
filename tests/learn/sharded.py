"""Comparison of one optimizer step on meshes of eight CPU devices with one on a single device.

Run it in a separate process: python -m tests.learn.sharded DATAxFSDPxTENSOR ...
It prints JSON for each mesh: largest differences, number of sharded params, equality of shardings.
"""

from __future__ import annotations

import json
import sys
import tempfile
from unittest import mock

import jax
import numpy as np

from tests.learn.tiny import run_step
from webagent_jax import learn, policy
from webagent_jax.config import (
    EngineConfig,
    GRPOConfig,
    OptimizerConfig,
    PolicyConfig,
    RunConfig,
)
from webagent_jax.policy import lora, sharding
from webagent_jax.policy.loading import initial_policy

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


def run_grpo_step(state, reference, mesh=None, base=None, *, grpo=GRPO, rows=None):
    return run_step(
        learn.GRPOLoss.from_config(MODEL, grpo, mesh=mesh),
        OPTIMIZER,
        state,
        make_rows() if rows is None else rows,
        learn.FrozenParams(base, reference),
        microbatch=MICROBATCH,
        mesh=mesh,
    )


def main(mesh_names):
    params = policy.init(MODEL, jax.random.key(0))
    reference = jax.tree.map(lambda x: x * 1.1, params)
    expected = run_grpo_step(learn.init_state(params, OPTIMIZER), reference)
    results = {
        mesh: compare_mesh(params, reference, expected, sizes=map(int, mesh.split("x")))
        for mesh in mesh_names
    }
    return {
        **results,
        "adapters": compare_adapters(params),
        "decoupled": compare_decoupled(params, reference),
        "copies": compare_copies(params),
        "loaded": load_for_engine(),
    }


def max_difference(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def compare_adapters(params):
    adapters = lora.init(params, jax.random.key(1), rank=2, projections=lora.PROJECTIONS)
    adapters = jax.tree.map(lambda x: x + 0.01, adapters)

    def train(mesh, put):
        state = learn.init_state(put(adapters), OPTIMIZER)
        base = lora.FrozenBase(put(params), 0.5)
        return run_grpo_step(state, lora.NO_ADAPTERS, mesh, base)

    expected, expected_metrics = train(None, lambda tree: tree)
    mesh = sharding.make_mesh(2, 2, 2)
    state, metrics = train(
        mesh, lambda tree: jax.device_put(tree, sharding.param_shardings(tree, mesh))
    )
    return {
        "loss": max_difference(metrics["loss"], expected_metrics["loss"]),
        "grad_norm": max_difference(metrics["grad_norm"], expected_metrics["grad_norm"]),
        "params": max(jax.tree.leaves(jax.tree.map(max_difference, state.params, expected.params))),
        "num_sharded_params": sum(
            not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.params)
        ),
    }


def compare_decoupled(params, reference):
    """Compare a step whose proximal policy differs from the policy."""

    def train(mesh, put):
        rows = learn.compute_prox_logp(
            MODEL, put(reference), make_rows(), microbatch=MICROBATCH, mesh=mesh
        )
        state = learn.init_state(put(params), OPTIMIZER)
        state, metrics = run_grpo_step(state, put(reference), mesh, grpo=DECOUPLED, rows=rows)
        return rows.prox_logp, state, metrics

    expected_logp, expected, expected_metrics = train(None, lambda tree: tree)
    mesh = sharding.make_mesh(2, 2, 2)
    logp, state, metrics = train(
        mesh, lambda tree: jax.device_put(tree, sharding.param_shardings(tree, mesh))
    )
    return {
        "logp": max_difference(logp, expected_logp),
        "metrics": max(max_difference(metrics[name], expected_metrics[name]) for name in metrics),
        "importance_capped_fraction": expected_metrics["importance_capped_fraction"],
        "params": max(jax.tree.leaves(jax.tree.map(max_difference, state.params, expected.params))),
    }


def compare_copies(params):
    """Compare the params of an engine of four devices, of one process of several."""
    make_mesh = jax.make_mesh

    def make_shuffled_mesh(shape, names, *, devices, **options):
        # TPUs of one VM are ordered along their ring, which is not the order of their ids.
        return make_mesh(shape, names, devices=[*devices[::2], *devices[1::2]], **options)

    with (
        mock.patch.object(jax, "make_mesh", make_shuffled_mesh),
        mock.patch.object(jax, "process_count", lambda: 2),
    ):
        copies = sharding.copy_to_each_process(params, tensor=4)
    return {
        "params": max(jax.tree.leaves(jax.tree.map(max_difference, copies, params))),
        "num_sharded_params": sum(
            not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(copies)
        ),
    }


def load_for_engine():
    """Return the devices of a policy without training, and the fraction of it on the first one."""
    cfg = RunConfig(
        policy=PolicyConfig(path="webagent-tiny"), engine=EngineConfig(tensor_parallel_size=4)
    )
    model, snapshot = initial_policy(cfg)
    kernel = snapshot.params["layers"]["gate"]["kernel"]
    fraction = sharding.bytes_per_device(snapshot.params) / policy.weight_bytes(model)
    return {"num_devices": len(kernel.sharding.device_set), "fraction": fraction}


def compare_mesh(params, reference, expected, *, sizes):
    expected_state, expected_metrics = expected
    mesh = sharding.make_mesh(*sizes)
    shardings = sharding.param_shardings(params, mesh)
    state = learn.init_state(jax.device_put(params, shardings), OPTIMIZER)
    reference = jax.device_put(reference, shardings)
    init_params = policy.init(MODEL, jax.random.key(0), mesh)
    with tempfile.TemporaryDirectory() as folder:
        policy.save_hf(folder, MODEL, params)
        _, loaded_params = policy.load_hf(folder, mesh=mesh)
    state, metrics = run_grpo_step(state, reference, mesh)

    def has_shardings(params):
        leaf_shardings = zip(jax.tree.leaves(params), jax.tree.leaves(shardings), strict=True)
        return all(
            leaf.sharding.is_equivalent_to(expected_sharding, leaf.ndim)
            for leaf, expected_sharding in leaf_shardings
        )

    return {
        "init": max(jax.tree.leaves(jax.tree.map(max_difference, init_params, params))),
        "init_has_shardings": has_shardings(init_params),
        "load": max(jax.tree.leaves(jax.tree.map(max_difference, loaded_params, params))),
        "load_has_shardings": has_shardings(loaded_params),
        "loss": max_difference(metrics["loss"], expected_metrics["loss"]),
        "grad_norm": max_difference(metrics["grad_norm"], expected_metrics["grad_norm"]),
        "params": max(
            jax.tree.leaves(jax.tree.map(max_difference, state.params, expected_state.params))
        ),
        "moments": max(
            jax.tree.leaves(jax.tree.map(max_difference, state.opt_state, expected_state.opt_state))
        ),
        "num_sharded_params": sum(
            not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.params)
        ),
        "keeps_shardings": has_shardings(state.params),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])))
