"""Tests of the logical axis rules and their errors, on abstract meshes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from webagent_jax import policy
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
