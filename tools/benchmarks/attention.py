"""Benchmark of forest attention, forward and backward: all implementations on the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tools.benchmarks import timing
from tools.benchmarks.episodes import Shape, branches
from webagent_jax import learn
from webagent_jax.policy.attention import IMPLEMENTATIONS, resolve_implementation

_HEADS, _KV_HEADS, _WIDTH = 8, 2, 64
_ROWS = ((300, 2_560), (1_300, 4_096), (1_300, 8_192))  # (system prompt tokens, row tokens)


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield one result per row length."""
    backend = jax.default_backend()
    dtype = jnp.float32 if backend == "cpu" else jnp.bfloat16
    names = dict.fromkeys(("dense", "blockwise", resolve_implementation("auto", backend, _WIDTH)))
    for system, row_tokens in _ROWS:
        rows = learn.pack_branches(
            branches(Shape(system=system), 2048, seed=0), row_tokens=row_tokens
        ).rows
        ends = jnp.asarray(rows.subtree_ends[:1])
        index = np.arange(row_tokens)
        num_pairs = int(np.sum(rows.subtree_ends[0] - index))
        flops = 3.5 * 4 * _HEADS * _WIDTH * num_pairs  # backward costs 2.5 times forward
        results = {name: _measure(name, ends, dtype, repeats) for name in names}
        yield {
            "name": f"attention: a row of {row_tokens}, {_HEADS} heads, {dtype.__name__}",
            "pairs seen, of causal": num_pairs / (row_tokens * (row_tokens + 1) / 2),
            **{
                name: result | {"flops_per_second": flops / result["seconds"]}
                for name, result in results.items()
            },
            "dense / chosen": results["dense"]["seconds"]
            / results[resolve_implementation("auto", backend, _WIDTH)]["seconds"],
        }


def _measure(name: str, ends: Any, dtype: Any, repeats: int) -> dict[str, float]:
    length = ends.shape[1]
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (
        jax.random.normal(key, (1, length, heads, _WIDTH), dtype)
        for key, heads in zip(keys, (_HEADS, _KV_HEADS, _KV_HEADS), strict=True)
    )

    def loss(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(IMPLEMENTATIONS[name](q, k, v, ends).astype(jnp.float32) ** 2)

    program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(q, k, v).compile()
    return {
        "seconds": timing.seconds(lambda: program(q, k, v), repeats),
        "bytes": timing.program_bytes(program),
    }
