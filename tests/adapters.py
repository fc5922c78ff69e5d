"""Reference of exported adapters: all kernels merged at once."""

from __future__ import annotations

from webagent_jax.policy import lora


def merge_adapters(params):
    """Return plain params of the same function, with the attached adapters merged."""
    layers = {}
    for name, part in params["layers"].items():
        layers[name] = {key: x for key, x in part.items() if key not in (lora.DOWN, lora.UP)}
        if lora.DOWN in part:
            layers[name]["kernel"] = lora.merged_kernel(part)
    return {**params, "layers": layers}
