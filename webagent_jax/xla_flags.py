"""XLA flags that JAX needs for correct values on CPU, set before JAX reads them."""

from __future__ import annotations

import logging
import os
import sys
from importlib import metadata

YNN_FUSION = "--xla_cpu_experimental_ynn_fusion_type"
DISABLE_YNN_REDUCE = f"{YNN_FUSION}=-reduce"
# XLA aborts on unknown flags: these versions support and need this one.
_JAXLIB_VERSIONS = frozenset({"0.10.2", "0.11.0", "0.11.1", "0.11.2"})

_logger = logging.getLogger(__name__)


def disable_ynn_reduce() -> None:
    """Add `DISABLE_YNN_REDUCE` to XLA_FLAGS if the CPU backend needs it.

    Fusions of sums into kernels of the YNNPACK library return wrong values or crash (jax issues
    39103, 39257 and 40412). Fusions of matmuls stay enabled: without them the bits of a row depend
    on the number of rows, so completions depend on the other requests of the batch. A user setting
    takes precedence. JAX reads XLA_FLAGS when its first backend starts, so this function does not
    import JAX and logs a warning if a backend is already initialized.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    is_file_name = bool(flags) and not flags.startswith("-")
    if YNN_FUSION in flags or is_file_name or not _is_needed():
        return
    os.environ["XLA_FLAGS"] = f"{flags} {DISABLE_YNN_REDUCE}".strip()
    xla_bridge = sys.modules.get("jax._src.xla_bridge")
    if xla_bridge and xla_bridge.backends_are_initialized():
        _logger.warning(
            "JAX started before the import of webagent_jax and may compute wrong values on CPU "
            "(jax issue 39103); import webagent_jax first, or export XLA_FLAGS=%s",
            DISABLE_YNN_REDUCE,
        )


def _is_needed() -> bool:
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and "cpu" not in platforms.split(","):
        return False
    try:
        return metadata.version("jaxlib") in _JAXLIB_VERSIONS
    except metadata.PackageNotFoundError:
        return False
