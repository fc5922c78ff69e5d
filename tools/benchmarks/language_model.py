"""Benchmark of update, prefill and decode of one policy, in tokens per second, with baselines.

The floor of a program is the larger of two times: its FLOPs at the rate of a large matmul, and one
read of weights and KV cache per decode step at the memory bandwidth. Each program runs with float32
and, if the CPU has them, with bfloat16 matmuls (`policy.matmul_dtype`); rate and weights of the
floor are those of the dtype. The largest engine also samples with LoRA adapters, as in rollouts,
against the floor without them. Baselines are transformers on torch, in float32 and, with AVX512,
bfloat16, and llama.cpp with the weights of a GGUF file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tools.benchmarks import baseline, timing
from tools.benchmarks.episodes import Shape, branches
from webagent_jax import learn, policy
from webagent_jax.config import ConfigError, GRPOConfig, OptimizerConfig
from webagent_jax.inference import Engine, kv_cache
from webagent_jax.policy import ModelConfig, Params, flops, lora, matmul, weights
from webagent_jax.types import Completion, ForestRows, IntArray

_ROW_TOKENS = 512
_SHAPE = Shape(system=120, turns=4, page=(60, 100))  # turns that fit the row
_SLOTS = (1, 16)
_PROMPT, _NEW_TOKENS = 384, 32
_DECODE_PROMPT = 8  # short, so that nearly all of the time is decoding
# As long as the prompts of a website, and in the prefix cache: its last token, which decoding
# computes, is the first of a page.
_CACHED_PROMPT = 449
_RANK = 16  # of the adapters of `configs/arena.py:smollm2`


def run(
    repeats: int, policy_path: str, baseline_python: str = "", llama_cpp: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield one result per dtype for the update, and two for each engine.

    Args:
        repeats: number of runs per measurement.
        policy_path: name or directory of the policy.
        baseline_python: Python interpreter with torch and transformers; empty skips them.
        llama_cpp: folder with node_modules/node-llama-cpp and one .gguf file; empty skips it.

    Raises:
        ConfigError: the folder does not contain one .gguf file.
    """
    config, params = weights.load(policy_path)
    rows = _rows(config)
    request = {
        "policy": str(policy.resolve_dir(policy_path)),
        "repeats": repeats,
        "vocabulary": config.vocab_size,
        "slots": _SLOTS,
        "prompt": _PROMPT,
        "decode_prompt": _DECODE_PROMPT,
        "new_tokens": _NEW_TOKENS,
        "row_tokens": _ROW_TOKENS,
        "targets": int(np.count_nonzero(rows.loss_weights)),
    }
    baselines: dict[str, dict[str, float]] = {}
    if baseline_python:
        rates = baseline.run_script(baseline_python, "transformers/language_model.py", request)
        baselines |= {f"transformers, {dtype}": values for dtype, values in rates.items()}
    if llama_cpp:
        file = _gguf_file(Path(llama_cpp))
        request |= {
            # `createRequire` of Node.js accepts absolute paths only.
            "folder": str(Path(llama_cpp).resolve()),
            "gguf": str(file),
            "threads": len(os.sched_getaffinity(0)),
        }
        label = f"llama.cpp, {file.name}"
        baselines[label] = baseline.run_script("node", "llama_cpp/decode.mjs", request)
    for variant, peak in _matmul_variants(config):
        dtype = {"matmul_dtype": variant.matmul_dtype}
        update = _update(variant, params, rows, repeats, peak)
        yield dtype | _with_baselines(baselines, "update", update)
        for slots in _SLOTS:
            with Engine(variant, params, slots=slots, max_model_len=_ROW_TOKENS) as engine:
                for name, result in _sampling(variant, engine, slots, repeats, peak):
                    yield dtype | _with_baselines(baselines, f"{name} {slots}", result)
        adapted = _attach_adapters(params)
        with Engine(variant, adapted, slots=_SLOTS[-1], max_model_len=_ROW_TOKENS) as engine:
            for _, result in _sampling(variant, engine, _SLOTS[-1], repeats, peak):
                yield dtype | result | {"name": f"{result['name']}, with adapters"}


def _gguf_file(folder: Path) -> Path:
    """Return the GGUF file of a folder.

    Raises:
        ConfigError: the folder contains none, or several.
    """
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ConfigError(
            f"--baseline_checkout={folder} must contain one GGUF file, and contains {names}: "
            "set it as third_party/README.md describes"
        )
    return files[0]


def _matmul_variants(config: ModelConfig) -> Iterator[tuple[ModelConfig, float]]:
    """Yield the config with each dtype of matmuls, and the FLOP per second of a large one."""
    yield config, timing.matmul_rate()
    if matmul.is_supported():
        rate = timing.matmul_rate(partial(matmul.matmul, 1))
        yield replace(config, matmul_dtype="bfloat16"), rate


def _attach_adapters(params: Params) -> Params:
    """Return the params with new adapters of all projections."""
    adapters = lora.init(params, jax.random.key(0), rank=_RANK, projections=lora.PROJECTIONS)
    attached: Params = lora.attach(lora.FrozenBase(params, scale=2.0), adapters)
    return attached


def _with_baselines(
    baselines: dict[str, dict[str, float]], name: str, result: dict[str, Any]
) -> dict[str, Any]:
    """Return the result with the rate of each baseline and the speedup over it."""
    rates = {
        label: {
            "tokens_per_second": values[name],
            "times_faster": result["tokens_per_second"] / values[name],
        }
        for label, values in baselines.items()
        if name in values
    }
    return result | rates


def _rows(config: ModelConfig) -> ForestRows:
    """Return one forest row of a group of episodes."""
    group = branches(_SHAPE, config.vocab_size, seed=0)
    turns = [b for b in group if len(b.prompt_ids) + len(b.response_ids) <= _ROW_TOKENS]
    rows = learn.pack_branches(turns, row_tokens=_ROW_TOKENS).rows
    first: ForestRows = jax.tree.map(lambda x: x[:1], rows)
    return first


def _update(
    config: ModelConfig, params: Params, rows: ForestRows, repeats: int, peak: float
) -> dict[str, Any]:
    """Measure one M-GRPO step over one forest row, without a reference policy."""
    optimizer = learn.make_optimizer(OptimizerConfig(), 1_000)
    state = learn.init_state(params, optimizer)

    loss_fn = learn.GRPOLoss.from_config(config, GRPOConfig(kl_beta=0.0))
    train_step = learn.make_train_step(loss_fn, optimizer)

    def step() -> Any:
        nonlocal state
        state, _ = train_step(state, learn.FrozenParams(), learn.split_microbatches(rows, 1))
        return state.params

    seconds = timing.seconds(step, repeats)
    pairs = int(np.sum(rows.subtree_ends - np.arange(_ROW_TOKENS)))
    forward = flops.layer_flops(config, _ROW_TOKENS, pairs) + flops.logits_flops(
        config, rows.target_indices.size
    )
    return {
        "name": f"update of a row of {_ROW_TOKENS}",
        "tokens_per_second": _ROW_TOKENS / seconds,
        "times_the_floor": seconds / (3 * forward / peak),  # backward is twice forward
    }


def _sampling(
    config: ModelConfig, engine: Engine, slots: int, repeats: int, peak: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    rng = np.random.default_rng(0)

    def generate(prompts: IntArray, new_tokens: int) -> list[Completion]:
        futures = [
            engine.submit(prompt, max_new_tokens=new_tokens, seed=seed)
            for seed, prompt in enumerate(prompts)
        ]
        return [future.result() for future in futures]

    def draw_prompts(tokens: int) -> IntArray:
        return rng.integers(0, config.vocab_size, (slots, tokens)).astype(np.int32)

    seconds = timing.seconds(lambda: generate(draw_prompts(_PROMPT), 1), repeats)
    work = slots * flops.layer_flops(config, _PROMPT, _PROMPT * (_PROMPT + 1) // 2)
    yield (
        "prefill",
        {
            "name": f"prefill of {slots} prompts of {_PROMPT}",
            "tokens_per_second": slots * _PROMPT / seconds,
            "times_the_floor": seconds / (work / peak),
        },
    )
    for key, tokens, suffix in (
        ("decode", _DECODE_PROMPT, ""),
        ("decode after prompts", _CACHED_PROMPT, f" after prompts of {_CACHED_PROMPT}"),
    ):
        prompts = draw_prompts(tokens)
        seconds = timing.seconds(partial(generate, prompts, _NEW_TOKENS), repeats)
        step = _decode_floor(config, slots, tokens + _NEW_TOKENS // 2, peak)
        yield (
            key,
            {
                "name": f"decoding of {slots} sequences{suffix}",
                "tokens_per_second": slots * _NEW_TOKENS / seconds,
                "times_the_floor": seconds / (_NEW_TOKENS * step),
            },
        )


def _decode_floor(config: ModelConfig, slots: int, position: int, peak: float) -> float:
    """Return the minimum seconds of a decode step: FLOPs, or one read of weights and KV cache."""
    step_flops = flops.layer_flops(config, slots, slots * position)
    step_flops += flops.logits_flops(config, slots)
    read_bytes = policy.weight_bytes(config)
    if config.has_rounded_matmuls:  # a step reads rounded copies
        read_bytes //= 2
    read_bytes += slots * position * kv_cache.kv_bytes_per_token(config)
    return max(step_flops / peak, read_bytes / timing.bandwidth())
