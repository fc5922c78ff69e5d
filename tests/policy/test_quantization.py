"""Tests of quantized projections against a NumPy twin and the dequantized policy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from webagent_jax import inference, policy
from webagent_jax.config import EngineConfig, RunConfig
from webagent_jax.policy import lora, quantization
from webagent_jax.policy.quantization import SCALE, quantize

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
INPUT_AXES = {"o": (1, 2)}  # of a stacked kernel; (1,) for the others


def random_params(seed: int, rank: int = 0) -> Any:
    """Return params whose biases are not 0, with adapters of a rank above 0."""
    params = policy.init(CONFIG, jax.random.key(seed))
    rng = np.random.default_rng(seed)
    for name in ("q", "k", "v"):
        bias = params["layers"][name]["bias"]
        params["layers"][name]["bias"] = jnp.asarray(rng.normal(size=bias.shape), jnp.float32)
    # One output of zeros.
    kernel = params["layers"]["down"]["kernel"]
    params["layers"]["down"]["kernel"] = kernel.at[:, :, 3].set(0.0)
    params = {**params, "embed": params["embed"] * 20.0}
    if not rank:
        return params
    adapters = lora.init(params, jax.random.key(seed), rank=rank, projections=lora.PROJECTIONS)
    random_adapters = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape) * 0.1, jnp.float32), adapters
    )
    return lora.attach(lora.FrozenBase(params, 0.5), random_adapters)


def dequantize(params: Any) -> Any:
    """Return the params that a quantized policy computes with, in float32."""
    layers = {}
    for name, projection in params["layers"].items():
        if SCALE not in projection:
            layers[name] = projection
            continue
        scale = np.asarray(projection[SCALE])
        kernel = np.asarray(projection["kernel"]).astype(np.float32)
        layers[name] = {
            **{key: x for key, x in projection.items() if key != SCALE},
            "kernel": jnp.asarray(kernel * np.expand_dims(scale, INPUT_AXES.get(name, (1,)))),
        }
        if "bias" in projection:
            layers[name]["bias"] = projection["bias"] * scale
    return {**params, "layers": layers}


def numpy_int8(kernel: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    scale = np.max(np.abs(kernel), axis=axes) / np.float32(127)
    scale = np.where(scale > 0, scale, np.float32(1))
    quantized = np.rint(kernel / np.expand_dims(scale, axes))
    return np.clip(quantized, -127, 127).astype(np.int8), scale


def test_int8_equals_numpy_twin() -> None:
    params = random_params(0)
    quantized = quantize(params, "int8")
    for name in lora.PROJECTIONS:
        kernel = np.asarray(params["layers"][name]["kernel"])
        expected, scale = numpy_int8(kernel, INPUT_AXES.get(name, (1,)))
        np.testing.assert_array_equal(quantized["layers"][name]["kernel"], expected, name)
        np.testing.assert_allclose(quantized["layers"][name][SCALE], scale, rtol=1e-6)
        assert quantized["layers"][name]["kernel"].dtype == jnp.int8
        assert np.abs(expected).max() == 127
    assert quantize(params, "none") is params


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.5 / 127), ("fp8", 2.0**-4)])
def test_error_is_within_half_a_unit(kind: Any, error: float) -> None:
    params = random_params(1)
    restored = dequantize(quantize(params, kind))
    for name in lora.PROJECTIONS:
        kernel = np.asarray(params["layers"][name]["kernel"])
        largest = np.max(np.abs(kernel), axis=INPUT_AXES.get(name, (1,)), keepdims=True)
        # A unit of int8 is that of the largest number of an output; one of fp8 is relative, down to
        # the smallest subnormal number.
        smallest = largest * float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).smallest_subnormal)
        bound = largest * error if kind == "int8" else np.maximum(np.abs(kernel) * error, smallest)
        difference = np.abs(np.asarray(restored["layers"][name]["kernel"]) - kernel)
        assert np.all(difference <= bound * 1.001), name
        assert difference.max() > 0


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_logits_equal_those_of_dequantized_params(kind: Any, rank: int) -> None:
    params = random_params(2, rank)
    quantized = quantize(params, kind)
    tokens = np.random.default_rng(0).integers(0, 61, (2, 40))
    expected = policy.logits(CONFIG, dequantize(quantized), tokens)
    np.testing.assert_allclose(
        policy.logits(CONFIG, quantized, tokens), expected, atol=2e-4, rtol=1e-4
    )
    # Quantization changes the logits by more than that.
    original = np.asarray(policy.logits(CONFIG, params, tokens))
    assert np.abs(original - np.asarray(expected)).max() > 2e-3


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_engine_samples_from_quantized_policy(kind: Any) -> None:
    served = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0, quantization=kind)
    prompt = list(range(30))
    with inference.Engine(served, random_params(3), slots=2, max_model_len=192) as engine:
        for seed in (3, 4):
            if seed == 4:
                engine.update_weights(random_params(4), version=1)
            completion = engine.submit(prompt, max_new_tokens=20, temperature=0.0).result(120)
            row = np.asarray([[*prompt, *completion.token_ids]])
            params = dequantize(quantize(random_params(seed), kind))
            logp = jax.nn.log_softmax(policy.logits(CONFIG, params, row)[0, 29:-1])
            np.testing.assert_array_equal(completion.token_ids, np.argmax(logp, axis=-1))
            np.testing.assert_allclose(completion.logp, np.max(logp, axis=-1), atol=1e-4)


def test_samples_of_quantized_engine_are_off_policy() -> None:
    assert RunConfig(engine=EngineConfig(quantization="int8")).is_off_policy
    assert not RunConfig().is_off_policy


def test_weight_bytes_count_quantized_kernels() -> None:
    served = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, dtype="bfloat16", quantization="int8")
    per_layer = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48  # numbers in kernels
    scales = 32 + 16 + 16 + 32 + 48 + 48 + 32
    others = 61 * 32 + 32 + 2 * (2 * 32 + 32 + 16 + 16)  # embedding, norms and biases
    assert policy.weight_bytes(served) == 2 * (per_layer + 2 * scales) + 2 * others
    quantized = quantize(policy.abstract_params(CONFIG), "none")
    assert not any(quantization.is_quantized(x) for x in jax.tree.leaves(quantized))
