"""Tests of all forest attention implementations against dense attention, on random forests."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webagent_jax import device_memory
from webagent_jax.chips import compile_target
from webagent_jax.policy import attention
from webagent_jax.policy.kernels import blockwise, gpu, tpu

SKIPPING = {
    "blockwise": partial(blockwise.attention, block=16, row_by_row=False),
    "blockwise, row by row": partial(blockwise.attention, block=16, row_by_row=True),
    "tpu": partial(tpu.attention, block=128, interpret=True),
    "gpu": partial(gpu.attention, interpret=True),
}
BATCH, LENGTH, KV_HEADS, WIDTH = 2, 160, 2, 16


def random_subtree_ends(rng, length, branching, padding):
    """Return `ends` of a random forest; `branching` is the probability to close a node."""
    ends = np.full(length, length - padding)
    path: list[int] = []
    for token in range(length - padding):
        while path and rng.random() < branching:
            ends[path.pop()] = token
        path.append(token)
    ends[length - padding :] = np.arange(length - padding, length) + 1  # padding sees itself
    return ends


@st.composite
def forests(draw):
    """Draw `ends` [B, L], from one path to separate tokens, with padding at the end."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    branching = draw(st.sampled_from([0.0, 0.02, 0.2, 0.9]))
    padding = draw(st.sampled_from([0, 1, 100]))
    return np.stack([random_subtree_ends(rng, LENGTH, branching, padding) for _ in range(BATCH)])


def operands(group, width=WIDTH):
    rng = np.random.default_rng(0)
    heads = (KV_HEADS * group, KV_HEADS, KV_HEADS, KV_HEADS * group)
    return [jnp.asarray(rng.normal(size=(BATCH, LENGTH, n, width)), jnp.float32) for n in heads]


@partial(jax.jit, static_argnames="attend")
def output_and_gradients(attend, q, k, v, weights, ends):
    def loss(q, k, v):
        out = attend(q, k, v, ends)
        return jnp.sum(out * weights), out

    (_, out), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(q, k, v)
    return out, gradients


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("name", SKIPPING)
def test_attention_matches_dense(name, group):
    arrays = operands(group)

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(forests())
    def check(ends):
        expected, expected_gradients = output_and_gradients(attention.dense, *arrays, ends)
        out, gradients = output_and_gradients(SKIPPING[name], *arrays, ends)
        np.testing.assert_allclose(out, expected, atol=2e-5)
        for gradient, wanted in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(gradient, wanted, atol=1e-4)

    check()


@pytest.mark.parametrize("length", [1, 63, 129])
@pytest.mark.parametrize("name", SKIPPING)
def test_attention_supports_any_length(name, length):
    q, k, v, weights = (x[:, :length] for x in operands(2))
    ends = np.full((BATCH, length), length)
    expected = output_and_gradients(attention.dense, q, k, v, weights, ends)
    actual = output_and_gradients(SKIPPING[name], q, k, v, weights, ends)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-4), actual, expected)


@pytest.mark.parametrize("width", [128, 256])
def test_gpu_kernels_with_small_tiles_match_dense(width):
    arrays = operands(2, width)
    ends = np.stack(
        [random_subtree_ends(np.random.default_rng(n), LENGTH, 0.1, 7) for n in range(BATCH)]
    )
    expected = output_and_gradients(attention.dense, *arrays, ends)
    actual = output_and_gradients(SKIPPING["gpu"], *arrays, ends)
    jax.tree.map(partial(np.testing.assert_allclose, atol=2e-4), actual, expected)


def test_dense_matches_masked_attention():
    q, k, v, _ = operands(2)
    ends = np.stack(
        [random_subtree_ends(np.random.default_rng(n), LENGTH, 0.1, 7) for n in range(BATCH)]
    )
    expected = attention.masked_attention(q, k, v, attention.forest_mask(jnp.asarray(ends)))
    np.testing.assert_allclose(attention.dense(q, k, v, ends), expected, atol=1e-6)


def test_auto_resolves_to_backend_kernel():
    assert [attention.resolve_implementation("auto", b, 64) for b in ("cpu", "gpu", "tpu")] == [
        "cpu",
        "gpu",
        "tpu",
    ]
    assert attention.resolve_implementation("auto", "METAL", 64) == "blockwise"
    assert [attention.resolve_implementation("auto", "gpu", n) for n in (80, 256, 512)] == [
        "blockwise",
        "gpu",
        "blockwise",
    ]
    assert attention.resolve_implementation("blockwise", "tpu", 64) == "blockwise"


@pytest.mark.parametrize(("name", "words"), [("flash", "blockwise"), ("tpu", "auto")])
def test_unavailable_implementation_is_rejected(name, words):
    with pytest.raises(ValueError, match=words):
        attention.resolve_implementation(name, "cpu", 64)


@pytest.mark.parametrize("width", [8, 24, 512])
def test_gpu_kernel_rejects_unsupported_head_dim(width):
    x = jnp.zeros((1, 8, 1, width))
    with pytest.raises(ValueError, match=f"head width {width}, only powers of two from 16 to 256"):
        gpu.attention(x, x, x, jnp.full((1, 8), 8))


def test_exceeded_shared_memory_is_not_exhausted_device_memory():
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")
    assert device_memory.is_exhausted(error)
    error = jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 131584, available: 101376"
    )
    assert not device_memory.is_exhausted(error)


# JAX 0.11 deprecates the Triton backend of Pallas, and still has it.
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32], ids=["bfloat16", "float32"])
def test_gpu_kernels_lower_to_triton(dtype):
    shapes = [jax.ShapeDtypeStruct((1, 256, n, 64), dtype) for n in (4, 2, 2, 4)]
    ends = jax.ShapeDtypeStruct((1, 256), jnp.int32)
    program = jax.jit(partial(output_and_gradients, gpu.attention))
    with compile_target(SimpleNamespace(platform="gpu", device_kind="NVIDIA H100")):
        lowered = program.trace(*shapes, ends).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("xla.gpu.triton") == 3  # forward, dq, dk and dv


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("heads, kv_heads, width", [(9, 3, 64), (16, 2, 128), (8, 2, 256)])
def test_compiled_gpu_kernels_match_dense(heads, kv_heads, width):
    rng = np.random.default_rng(heads)
    ends = np.stack([random_subtree_ends(rng, 1024, 0.02, 7) for _ in range(BATCH)])
    arrays = [
        jnp.asarray(rng.normal(size=(BATCH, 1024, n, width)), jnp.float32)
        for n in (heads, kv_heads, kv_heads, heads)
    ]
    with jax.default_matmul_precision("highest"):
        out, gradients = output_and_gradients(attention.dense, *arrays, ends)
    for dtype, tolerance in ((jnp.float32, 1e-5), (jnp.bfloat16, 1e-2)):
        rounded = [*(x.astype(dtype) for x in arrays[:3]), arrays[3]]
        actual_out, actual_gradients = output_and_gradients(gpu.attention, *rounded, ends)
        for actual, expected in zip(
            (actual_out, *actual_gradients), (out, *gradients), strict=True
        ):
            error = jnp.linalg.norm(actual.astype(jnp.float32) - expected)
            assert error < tolerance * jnp.linalg.norm(expected)
