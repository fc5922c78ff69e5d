"""Exchanges, copies and exports over two processes with four devices each.

python -m tests.policy.processes PORT PROCESS_ID FOLDER
Each process writes its results to FOLDER/PROCESS_ID.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np

from tests.learn import sharded
from webagent_jax import distributed, policy
from webagent_jax.config import LoRAConfig, MeshConfig, PolicyConfig, RunConfig
from webagent_jax.learn.microbatches import gather_local_rows, split_microbatches
from webagent_jax.policy import sharding
from webagent_jax.train.learner import Learner

NAME = "webagent-tiny"
DELTA = 0.01  # added to all adapters, because new ones do not change the policy
LORA = LoRAConfig(rank=2, target_modules=("q", "o", "down"))


def interleaved_devices():
    """Return the devices in an order that mixes the processes, as the topology of TPUs does."""
    return [jax.devices()[i] for i in (0, 1, 4, 5, 7, 6, 3, 2)]


def count_wrong_values(params, expected):
    """Count the wrong values in the shards of this process."""
    return sum(
        int((np.asarray(shard.data) != np.asarray(expected_leaf)[shard.index]).sum())
        for leaf, expected_leaf in zip(
            jax.tree.leaves(params), jax.tree.leaves(expected), strict=True
        )
        for shard in leaf.addressable_shards
    )


def make_value(process_id):
    """Return the value of a process for `allgather`; its JSON is longer for the second process."""
    return {"é": [process_id] * (1 + 9 * process_id)}


def copy_params(expected):
    mesh = sharding.make_mesh(fsdp=-1, devices=interleaved_devices())
    _, params = policy.load_hf(NAME, mesh=mesh)
    copies = {tensor: sharding.copy_to_each_process(params, tensor) for tensor in (1, 4)}
    # Several blocks of the embedding, the last one smaller than the others.
    sharding._GATHERED_BYTES = 300_000
    gathered = sharding.gather_to_first_process(params)
    return {
        "wrong_copies": sum(count_wrong_values(copy, expected) for copy in copies.values()),
        "devices_of_copies": [
            len(copy["layers"]["gate"]["kernel"].sharding.device_set) for copy in copies.values()
        ],
        # NumPy arrays only: a device may not have the memory for all of them.
        "num_gathered": sum(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(gathered)),
        "gathered_equal": jax.process_index() > 0
        or all(map(np.array_equal, jax.tree.leaves(gathered), jax.tree.leaves(expected))),
    }


def shard_rows():
    """Return whether the rows of this process stay in this process, for each size of tensor."""
    rows = sharded.make_rows()
    rows.behavior_logp[:] -= jax.process_index()
    results = {}
    for tensor in (1, 2, 4):
        mesh = sharding.make_mesh(fsdp=-1, tensor=tensor, devices=interleaved_devices())
        sharding.check_row_shards(mesh)
        parts = split_microbatches(rows, sharded.MICROBATCH, mesh).behavior_logp
        local = gather_local_rows(parts).reshape(rows.behavior_logp.shape)
        results[tensor] = bool(np.array_equal(local, rows.behavior_logp))
    try:
        sharding.check_row_shards(sharding.make_mesh(tensor=8))
    except sharding.ShardingError as error:
        results["error"] = str(error)
    return results


def export(folder):
    for name, options in (("full", LoRAConfig()), ("lora", LORA)):
        cfg = RunConfig(policy=PolicyConfig(path=NAME), mesh=MeshConfig(fsdp=-1), lora=options)
        with Learner(cfg, folder / name) as learner:
            trained = learner.state.params
            if name == "lora":
                trained = jax.jit(lambda tree: jax.tree.map(lambda x: x + DELTA, tree))(trained)
            learner.export(folder / name / "policy", trained)


def main(port, process_id, folder):
    jax.config.update("jax_num_cpu_devices", 4)
    jax.distributed.initialize(f"localhost:{port}", 2, int(process_id))
    _, expected = policy.load_hf(NAME)
    results = {
        **copy_params(expected),
        "rows": shard_rows(),
        "gathered_values": distributed.allgather(make_value(jax.process_index())),
    }
    export(Path(folder))
    (Path(folder) / f"{process_id}.json").write_text(json.dumps(results))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
