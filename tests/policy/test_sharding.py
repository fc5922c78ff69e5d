"""Tests of the logical axis rules and their errors, of meshes, and of params over processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from tests.devices import find_free_port
from tests.policy import processes
from webagent_jax import chips, policy
from webagent_jax.policy import attention, lora, sharding

MESH = AbstractMesh((2, 4, 2), sharding.MESH_AXES)
KERNEL = ("embed", "kv_heads", "head_dim")


def test_partition_spec_follows_axis_rules():
    assert sharding.partition_spec(MESH, KERNEL, (8, 2, 5)) == PartitionSpec(
        ("fsdp",), ("tensor",), None
    )


def test_mesh_axes_of_one_device_do_not_shard():
    mesh = AbstractMesh((8, 1, 1), sharding.MESH_AXES)
    assert sharding.partition_spec(mesh, KERNEL, (7, 3, 5)) == PartitionSpec(None, None, None)


def test_too_few_kv_heads_are_replicated():
    assert sharding.partition_spec(MESH, KERNEL, (8, 1, 5)) == PartitionSpec(("fsdp",), None, None)


def test_indivisible_axis_error_names_param():
    with pytest.raises(sharding.ShardingError, match=r"q/kernel: axis 'embed' of 6 .* by 4"):
        sharding.partition_spec(MESH, ("embed", "heads"), (6, 4), name="q/kernel")


def test_batch_of_too_few_rows_is_rejected():
    batch_sharding = sharding.batch_sharding(MESH, (3, 16, 5), rows_axis=1)
    assert batch_sharding.spec == PartitionSpec(None, ("data", "fsdp"), None)
    with pytest.raises(sharding.ShardingError, match="batch: axis 'rows' of 4"):
        sharding.batch_sharding(MESH, (4, 5))


def test_duplicate_mesh_axis_error_names_axes():
    rules = {**sharding.LOGICAL_AXIS_RULES, "embed": ("tensor",)}
    with pytest.raises(sharding.ShardingError, match=r"'embed' and 'heads' .* 'tensor'"):
        sharding.partition_spec(MESH, ("embed", "heads"), (8, 4), rules=rules)


@pytest.mark.parametrize(
    "features", [{}, {"qkv_bias": False}, {"qkv_bias": False, "qk_norm": True}]
)
@pytest.mark.parametrize("tied", [True, False])
def test_all_params_of_all_families_have_shardings(features, tied):
    config = policy.ModelConfig(64, 32, 2, 4, 2, 8, 48, tie_embeddings=tied, **features)
    shapes = policy.abstract_params(config)
    shardings = sharding.param_shardings(shapes, MESH)
    assert jax.tree.structure(shardings) == jax.tree.structure(shapes)


def test_indivisible_kv_heads_are_rejected():
    q, k = jnp.zeros((8, 4, 6, 2)), jnp.zeros((8, 4, 3, 2))
    mesh = AbstractMesh((2, 4, 2), sharding.MESH_AXES)
    with pytest.raises(sharding.ShardingError, match="3 key-value heads on 2 devices of tensor"):
        attention.shard_attention(attention.dense, mesh)(q, k, k, jnp.zeros((8, 4)))


def test_adapters_are_sharded_like_projections():
    params = policy.abstract_params(policy.ModelConfig(64, 32, 2, 4, 2, 8, 48))
    shardings = sharding.param_shardings(lora.abstract_adapters(params, 2, lora.PROJECTIONS), MESH)[
        "layers"
    ]
    assert shardings["q"][lora.DOWN].spec == PartitionSpec(None, ("fsdp",), None)
    assert shardings["o"][lora.DOWN].spec == PartitionSpec(None, ("tensor",), None, None)
    assert shardings["k"][lora.UP].spec == PartitionSpec(None, None, ("tensor",), None)
    assert shardings["down"][lora.UP].spec == PartitionSpec(None, None, ("fsdp",))


def test_make_mesh_covers_all_devices():
    assert sharding.make_mesh(fsdp=-1).shape["fsdp"] == len(jax.devices())
    with pytest.raises(sharding.ShardingError, match="data=3"):
        sharding.make_mesh(data=3)


def test_engine_mesh_needs_enough_devices():
    assert sharding.engine_mesh(1) is None
    count = len(jax.local_devices()) + 1
    with pytest.raises(sharding.ShardingError, match=f"tensor_parallel_size={count} is more than"):
        sharding.engine_mesh(count)


@pytest.mark.skipif(not find_spec("libtpu"), reason="the extra webagent_jax[tpu]")
@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("topology", ["v5e:4x4", "v6e:4x4", "v5p:2x2x4"])
def test_make_mesh_gives_each_tpu_vm_consecutive_row_shards(topology, tensor):
    mesh = sharding.make_mesh(fsdp=-1, tensor=tensor, devices=chips.topology_devices(topology))
    sharding.check_row_shards(mesh)
    assert [device.process_index for device in mesh.devices.flat] == sorted([0, 1, 2, 3] * 4)


@pytest.mark.skipif(not find_spec("libtpu"), reason="the extra webagent_jax[tpu]")
def test_make_mesh_supports_shapes_that_jax_does_not():
    vm = [d for d in chips.topology_devices("v6e:4x4") if d.process_index == 0]
    assert sharding.make_mesh(2, 1, 2, vm).shape == {"data": 2, "fsdp": 1, "tensor": 2}
    mesh = sharding.make_mesh(2, 4, 2, chips.topology_devices("v6e:4x4"))
    assert mesh.shape == {"data": 2, "fsdp": 4, "tensor": 2}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Return the results of both processes and the folder of their exports."""
    folder = tmp_path_factory.mktemp("processes")
    port = find_free_port()
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.policy.processes", str(port), str(i), str(folder)],
            env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    try:
        for child in children:
            _, stderr = child.communicate(timeout=500)
            assert child.returncode == 0, stderr
    finally:
        for child in children:
            child.kill()
    return [json.loads((folder / f"{i}.json").read_text()) for i in range(2)], folder


@pytest.mark.timeout(600)
def test_two_processes_copy_and_gather_params(two_processes):
    results, _ = two_processes
    for result in results:
        assert result["wrong_copies"] == 0
        assert result["devices_of_copies"] == [1, 4]
        assert result["gathered_equal"]
    assert results[0]["num_gathered"] == 14 and results[1]["num_gathered"] == 0


@pytest.mark.timeout(600)
def test_two_processes_keep_their_rows(two_processes):
    for result in two_processes[0]:
        assert [result["rows"][tensor] for tensor in ("1", "2", "4")] == [True] * 3
        assert "mesh.tensor=8 must divide" in result["rows"]["error"]


@pytest.mark.timeout(600)
def test_two_processes_exchange_values_of_different_lengths(two_processes):
    for result in two_processes[0]:
        assert result["gathered_values"] == [processes.make_value(i) for i in range(2)]


@pytest.mark.timeout(600)
def test_two_processes_export_like_one(two_processes, tmp_path):
    _, folder = two_processes
    processes.export(tmp_path)
    for name, tolerance in (("full", 0.0), ("lora", 1e-6), ("lora/adapter", 0.0)):
        path = name if "/" in name else f"{name}/policy"
        exports = [policy.load_hf(parent / path)[1] for parent in (folder, tmp_path)]
        for leaf, expected_leaf in zip(*map(jax.tree.leaves, exports), strict=True):
            np.testing.assert_allclose(leaf, expected_leaf, rtol=0, atol=tolerance)
