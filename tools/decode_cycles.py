"""Print the compiler's estimate of the cycles of decode attention on TPUs, without a TPU.

python tools/decode_cycles.py            # needs libtpu: pip install "webagent_jax[tpu]"

16 slots with 16,384 tokens each, 16 query heads and 2 key-value heads, 36 layers, bfloat16, as in
Qwen2.5-3B for heads of 128 numbers. The estimates do not include waiting for memory.
"""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from webagent_jax.hlo import estimated_cycles
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference.paged_attention import AttentionMetadata, paged_attention
from webagent_jax.policy import presets

TOPOLOGIES = ("v5e:2x2", "v5p:2x2x1", "v6e:2x2")
SLOTS, PAGES, PAGE_TOKENS, KV_HEADS, HEADS, LAYERS = 16, 256, 64, 2, 16, 36
# Layout and page-table columns per block: those of a CPU, and those of an accelerator.
CPU: tuple[kv.Layout, int] = ("transposed", 2)
ACCELERATOR: dict[int, tuple[kv.Layout, int]] = {128: ("rows", 32), 64: ("fused", 32)}


def main() -> None:
    """Print a table in Markdown."""
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    print("| chip | head width | layout | million cycles | ratio | temporaries, MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for topology in TOPOLOGIES:
        chip = topology.partition(":")[0]
        device = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
        for width, accelerator in ACCELERATOR.items():
            results = [_compile(device, width, *options) for options in (CPU, accelerator)]
            for (layout, _), (cycles, temporaries) in zip((CPU, accelerator), results, strict=True):
                print(
                    f"| {chip} | {width} | {layout} | {cycles / 1e6:.1f} "
                    f"| {cycles / results[0][0]:.3f} | {temporaries / 2**20:.0f} |"
                )


def _compile(device: Any, width: int, layout: kv.Layout, columns: int) -> tuple[int, int]:
    """Return cycles of all layers, and bytes of temporaries of one layer."""
    sharding = SingleDeviceSharding(device)

    def abstract(shape: tuple[int, ...], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    num_pages = 1 + PAGES * (SLOTS + SLOTS // 2)
    # One layer; the number of layers and the other sizes of the model do not matter here.
    preset = presets.find_preset("Qwen2.5-3B")
    assert preset is not None
    model = dataclasses.replace(
        preset,
        num_layers=1,
        num_kv_heads=KV_HEADS,
        head_dim=width,
        dtype="bfloat16",
    )
    (pages,) = jax.eval_shape(partial(kv.init_pages, model, num_pages, PAGE_TOKENS, layout))
    layer = jax.tree.map(lambda x: abstract(x.shape, x.dtype), pages)
    metadata = AttentionMetadata(
        page_tables=abstract((SLOTS, PAGES), jnp.int32),
        query_positions=abstract((SLOTS, 1), jnp.int32),
        num_columns=abstract((), jnp.int32),
        has_prefix=abstract((SLOTS,), jnp.bool_),
    )
    queries = abstract((SLOTS, 1, HEADS, width), jnp.bfloat16)
    attend = jax.jit(partial(paged_attention, pages_per_block=columns))
    compiled = attend.lower(queries, layer, None, metadata).compile()
    cycles = estimated_cycles(compiled.as_text() or "", (-(-PAGES // columns),))
    memory: Any = compiled.memory_analysis()
    return LAYERS * cycles, memory.temp_size_in_bytes


if __name__ == "__main__":
    main()
