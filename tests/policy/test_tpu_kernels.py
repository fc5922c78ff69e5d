"""Tests of the TPU kernels with the ahead-of-time TPU compiler; they need libtpu but no TPU."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from webagent_jax.policy.kernels import tpu

libtpu = pytest.importorskip("libtpu", reason="install the extra webagent_jax[tpu]")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1", "v6e:2x2"])
@pytest.mark.parametrize("width", [64, 128])
def test_forward_and_backward_compile(topology, dtype, width, monkeypatch):
    from jax.experimental import topologies

    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    device = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    shape = partial(jax.ShapeDtypeStruct, sharding=sharding)
    length, heads, kv_heads = 2048, 8, 2
    q = shape((1, length, heads, width), dtype)
    k = v = shape((1, length, kv_heads, width), dtype)
    ends = shape((1, length), jnp.int32)

    def loss(q, k, v, ends):
        return jnp.sum(tpu.attention(q, k, v, ends).astype(jnp.float32))

    compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(q, k, v, ends).compile()
    scores = heads * length * length * 4
    assert compiled.memory_analysis().temp_size_in_bytes < scores / 2
