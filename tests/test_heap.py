"""Freed memory stays in the process: a second allocation causes no page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from webagent_jax import heap

FAULTS = """
import resource
import numpy as np
from webagent_jax import heap

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(64 << 20, np.uint8).fill(1)  # 16,384 pages, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(heap.keep_freed_memory())
faults()
print(faults())
"""


def run(**environment: str) -> list[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in heap._USER_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=inherited | {"NUMPY_MADVISE_HUGEPAGE": "0"} | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused_without_page_faults():
    worked, faults = run()
    assert worked == "True"
    assert int(faults) < 100
    worked, faults = run(MALLOC_MMAP_MAX_="65536")  # the user's setting is kept
    assert worked == "False"
    assert int(faults) > 10_000
