"""Comparison of engines sharded over several of 8 CPU devices with an engine on one device.

python -m tests.inference.sharded TENSOR[:LAYOUT[:QUANTIZATION]] ...
prints JSON by argument: whether tokens are equal, the largest difference of their
log-probabilities, and over how many devices params and pages are sharded. LAYOUT is that of the
pages, by default that of a CPU, or "gpu": the layout and the interpreted kernel of a GPU.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from webagent_jax import inference, policy
from webagent_jax.inference import engine_shapes, gpu_paged_attention
from webagent_jax.policy import sharding
from webagent_jax.types import Completion

MODEL = policy.ModelConfig(
    vocab_size=64, d_model=32, num_layers=2, num_heads=8, num_kv_heads=4, head_dim=8, d_ff=48
)


def sample(
    model: policy.ModelConfig, params: policy.Params, mesh: Any, result: dict[str, Any]
) -> list[Completion]:
    rng = np.random.default_rng(0)
    common = rng.integers(0, 64, 130)
    prompts = [np.append(common, rng.integers(0, 64, n)) for n in (1, 20, 70, 90)] * 2
    prompts[3] = prompts[3][1:]  # another first token
    options: dict[str, Any] = {
        "slots": 4,
        "max_model_len": 320,
        "shared_prefix": common[:100],
        "num_speculative_tokens": 2,
    }
    with inference.Engine(model, params, **options, mesh=mesh) as engine:
        old_futures = [engine.submit(p, max_new_tokens=20, seed=i) for i, p in enumerate(prompts)]
        completions = [future.result(120) for future in old_futures]
        new_params = jax.tree.map(lambda x: x * 1.01, params)
        engine.update_weights(new_params, version=1)
        new_futures = [engine.submit(p, max_new_tokens=20, seed=i) for i, p in enumerate(prompts)]
        completions += [future.result(120) for future in new_futures]
        if mesh is not None:
            assert engine._state is not None
            arrays = [
                engine._params["layers"][0]["gate"]["kernel"],
                engine._state.pages[0][-1],
                engine._shared_prefix[0].keys,
            ]
            result["cut"] = [x.size // x.addressable_shards[0].data.size for x in arrays]
    return completions


def use_layout(layout: str) -> None:
    """Change the layout of the pages of all engines, and with "gpu" the attention to them."""
    is_gpu = layout == "gpu"
    engine_shapes._kv_layout = lambda config, platform: "rows" if is_gpu else layout
    engine_shapes._decode_attention = lambda config, platform: "gpu" if is_gpu else "xla"
    if is_gpu:
        gpu_paged_attention.attend = partial(gpu_paged_attention.attend, interpret=True)


def main() -> None:
    fsdp_mesh = sharding.make_mesh(fsdp=8)
    params = policy.init(MODEL, jax.random.key(0), fsdp_mesh)
    params = {**params, "embed": params["embed"] * 20.0}
    # The last field of an argument is optional, and so is the one before it.
    arguments = {argument: [*argument.split(":"), "", ""][:3] for argument in sys.argv[1:]}
    expected = {
        kind: sample(replace(MODEL, quantization=kind or "none"), params, None, {})
        for kind in {kind for _, _, kind in arguments.values()}
    }
    report = {}
    for argument, (tensor_text, layout, kind) in arguments.items():
        model = replace(MODEL, quantization=kind or "none")
        if layout:
            use_layout(layout)
        tensor = int(tensor_text)
        result: dict[str, Any] = {}
        mesh = sharding.make_mesh(tensor=tensor, devices=jax.devices()[:tensor])
        completions = sample(model, params, mesh, result)
        pairs = list(zip(completions, expected[kind], strict=True))
        result["same"] = all(np.array_equal(a.token_ids, b.token_ids) for a, b in pairs)
        if result["same"]:
            result["logp"] = max(float(np.max(np.abs(a.logp - b.logp))) for a, b in pairs)
        report[argument] = result
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
