"""The table of logical axes, and what it refuses; with meshes that need no devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from webagent_jax import policy
from webagent_jax.policy import attention, lora, sharding

MESH = AbstractMesh((2, 4, 2), sharding.MESH_AXES)
KERNEL = ("embed", "kv_heads", "head_dim")


def test_axes_are_cut_as_the_table_says():
    assert sharding.partition_spec(MESH, KERNEL, (8, 2, 5)) == PartitionSpec(
        ("fsdp",), ("tensor",), None
    )


def test_mesh_axes_of_one_device_cut_nothing():
    mesh = AbstractMesh((8, 1, 1), sharding.MESH_AXES)
    assert sharding.partition_spec(mesh, KERNEL, (7, 3, 5)) == PartitionSpec(None, None, None)


def test_too_few_key_value_heads_are_kept_whole():
    assert sharding.partition_spec(MESH, KERNEL, (8, 1, 5)) == PartitionSpec(("fsdp",), None, None)


def test_what_does_not_divide_is_refused_by_name():
    with pytest.raises(sharding.ShardingError, match=r"q/kernel: axis 'embed' of 6 .* by 4"):
        sharding.partition_spec(MESH, ("embed", "heads"), (6, 4), name="q/kernel")


def test_a_batch_of_too_few_rows_is_refused():
    at = sharding.batch_sharding(MESH, (3, 16, 5), rows_axis=1)
    assert at.spec == PartitionSpec(None, ("data", "fsdp"), None)
    with pytest.raises(sharding.ShardingError, match="batch: axis 'rows' of 4"):
        sharding.batch_sharding(MESH, (4, 5))


def test_two_axes_over_one_mesh_axis_are_refused_by_name():
    rules = {**sharding.LOGICAL_AXIS_RULES, "embed": ("tensor",)}
    with pytest.raises(sharding.ShardingError, match=r"'embed' and 'heads' .* 'tensor'"):
        sharding.partition_spec(MESH, ("embed", "heads"), (8, 4), rules=rules)


@pytest.mark.parametrize(
    "features", [{}, {"qkv_bias": False}, {"qkv_bias": False, "qk_norm": True}]
)
@pytest.mark.parametrize("tied", [True, False])
def test_every_param_of_every_family_has_its_axes(features, tied):
    config = policy.ModelConfig(64, 32, 2, 4, 2, 8, 48, tie_embeddings=tied, **features)
    shapes = policy.abstract_params(config)
    placed = sharding.param_shardings(shapes, MESH)
    assert jax.tree.structure(placed) == jax.tree.structure(shapes)


def test_key_value_heads_that_do_not_divide_the_devices_are_refused():
    q, k = jnp.zeros((8, 4, 6, 2)), jnp.zeros((8, 4, 3, 2))
    mesh = AbstractMesh((2, 4, 2), sharding.MESH_AXES)
    with pytest.raises(sharding.ShardingError, match="3 key-value heads on 2 devices of tensor"):
        attention.shard_attention(attention.dense, mesh)(q, k, k, jnp.zeros((8, 4)))


def test_adapters_are_cut_as_their_projections():
    params = policy.abstract_params(policy.ModelConfig(64, 32, 2, 4, 2, 8, 48))
    placed = sharding.param_shardings(lora.abstract_adapters(params, 2, lora.PROJECTIONS), MESH)[
        "layers"
    ]
    assert placed["q"][lora.DOWN].spec == PartitionSpec(None, ("fsdp",), None)
    assert placed["o"][lora.DOWN].spec == PartitionSpec(None, ("tensor",), None, None)
    assert placed["k"][lora.UP].spec == PartitionSpec(None, None, ("tensor",), None)
    assert placed["down"][lora.UP].spec == PartitionSpec(None, None, ("fsdp",))


def test_a_mesh_covers_all_devices():
    assert sharding.make_mesh(fsdp=-1).shape["fsdp"] == len(jax.devices())
    with pytest.raises(sharding.ShardingError, match="data=3"):
        sharding.make_mesh(data=3)
