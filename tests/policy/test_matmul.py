"""Tests of matmuls with bfloat16 inputs against NumPy with rounded inputs."""

from __future__ import annotations

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from webagent_jax import inference, policy
from webagent_jax.config import ConfigError, PolicyConfig, RunConfig
from webagent_jax.inference import programs, serving_params
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.policy import lora, matmul
from webagent_jax.policy.loading import load_policy

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
needs_bfloat16 = pytest.mark.usefixtures("bfloat16_matmul")


@pytest.fixture
def bfloat16_matmul():
    """Skip the test on CPUs without the instructions."""
    if not matmul.is_supported():
        pytest.skip("this CPU has no bfloat16 matmul with float32 accumulation")


def rounded(x: jax.Array) -> np.ndarray:
    """Return bfloat16 values as float64."""
    return np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float64)


@needs_bfloat16
# Shapes of the query projection, the output projection, and a narrow adapter.
@pytest.mark.parametrize(
    ("x_shape", "kernel_shape", "num_axes"),
    [((3, 5, 16), (16, 4, 8), 1), ((15, 4, 8), (4, 8, 16), 2), ((15, 48), (48, 3), 1)],
)
def test_matmul_and_gradients_match_numpy_with_rounded_inputs(x_shape, kernel_shape, num_axes):
    x_key, kernel_key, gradient_key = jax.random.split(jax.random.key(0), 3)
    x, kernel = jax.random.normal(x_key, x_shape), jax.random.normal(kernel_key, kernel_shape)
    out, pullback = jax.vjp(lambda x, kernel: matmul.matmul(num_axes, x, kernel), x, kernel)
    inner = np.prod(kernel_shape[:num_axes])
    x_2d, kernel_2d = rounded(x).reshape(-1, inner), rounded(kernel).reshape(inner, -1)
    np.testing.assert_allclose(out.reshape(len(x_2d), -1), x_2d @ kernel_2d, atol=2e-5)
    assert out.shape == (*x_shape[: x.ndim - num_axes], *kernel_shape[num_axes:])

    gradient = jax.random.normal(gradient_key, out.shape)
    gradient_2d = rounded(gradient).reshape(len(x_2d), -1)
    x_gradient, kernel_gradient = pullback(gradient)
    np.testing.assert_allclose(x_gradient, (gradient_2d @ kernel_2d.T).reshape(x_shape), atol=2e-5)
    np.testing.assert_allclose(
        kernel_gradient, (x_2d.T @ gradient_2d).reshape(kernel_shape), atol=2e-5
    )


@needs_bfloat16
def test_matmul_dtype_rounds_logits_and_gradients_of_adapters():
    params = policy.init(CONFIG, jax.random.key(0))
    adapters = lora.init(params, jax.random.key(1), rank=2, projections=lora.PROJECTIONS)
    adapters = jax.tree.map(lambda x: x + 0.1, adapters)
    tokens = jax.random.randint(jax.random.key(2), (2, 24), 0, CONFIG.vocab_size)

    def loss(adapters, config):
        attached = lora.attach(lora.FrozenBase(params, 0.5), adapters)
        logp = jax.nn.log_softmax(policy.logits(config, attached, tokens))
        return logp[:, :-1].mean(), logp

    gradient = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    exact, exact_logp = gradient(adapters, CONFIG)
    approximate, logp = gradient(adapters, dataclasses.replace(CONFIG, matmul_dtype="bfloat16"))
    difference = np.abs(logp - exact_logp).max()
    # 8 bits of mantissa: different from float32, and close to it.
    assert 1e-5 < difference < 0.05
    for a, b in zip(jax.tree.leaves(approximate), jax.tree.leaves(exact), strict=True):
        assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)


@needs_bfloat16
def test_engine_with_matmul_dtype_samples_with_the_logp_of_score():
    config = dataclasses.replace(CONFIG, matmul_dtype="bfloat16")
    params = policy.init(config, jax.random.key(0))
    prompt = np.arange(1, 30, dtype=np.int32)
    with inference.Engine(config, params, slots=2, max_model_len=64) as engine:
        completion = engine.submit(prompt, max_new_tokens=12, seed=0).result()
    sequence = np.concatenate([prompt, completion.token_ids])[None]

    def response_logp(config):
        logp = jax.nn.log_softmax(policy.logits(config, params, sequence))[0]
        return np.array([logp[i + len(prompt) - 1, t] for i, t in enumerate(completion.token_ids)])

    np.testing.assert_allclose(completion.behavior_logp, response_logp(config), atol=1e-4)
    # The engine rounds: it differs from float32 matmuls by more than the tolerance above.
    assert np.abs(completion.behavior_logp - response_logp(CONFIG)).max() > 1e-3


@needs_bfloat16
def test_compiled_engine_converts_no_kernel_to_float32():
    config = dataclasses.replace(CONFIG, matmul_dtype="bfloat16")
    params = policy.init(config, jax.random.key(0))
    shapes = EngineShapes.from_config(
        config, slots=16, max_model_len=64, decode_steps=4, cache_bytes=2**20
    )
    # XLA has no bfloat16 matmul of one row.
    shapes = dataclasses.replace(shapes, sequential_slots=False)
    served = jax.jit(partial(serving_params.serving_params, config, fuse=True))(params)
    spec = programs.ProgramSpec.from_params(config, shapes, served)
    for name in ("prefill", "decode"):
        text = programs.lower(spec, name).compile().as_text()
        assert re.search(r"bf16\[(32,48|48,32)\]", text)
        assert not re.search(r"f32\[(32,48|48,32)\]", text)


def test_dot_general_rejects_other_axes():
    with pytest.raises(ValueError, match="not those of a dense layer"):
        matmul.dot_general(jnp.zeros((2, 3)), jnp.zeros((2, 4)), (((0,), (0,)), ((), ())))


def test_unsupported_matmul_dtype_is_reported_before_loading(monkeypatch):
    monkeypatch.setattr(matmul, "is_supported", lambda: False)
    run = RunConfig(policy=PolicyConfig(matmul_dtype="bfloat16"))
    with pytest.raises(ConfigError, match=r"set policy\.matmul_dtype=float32"):
        load_policy(run)
