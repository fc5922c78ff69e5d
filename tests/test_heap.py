"""Tests of the reuse of freed memory: a second allocation causes no page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from webagent_jax import heap

PAGE_FAULT_SCRIPT = """
import resource
import numpy as np
from webagent_jax import heap

def count_page_faults():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(64 << 20, np.uint8).fill(1)  # 16,384 pages, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start

print(heap.keep_freed_memory())
count_page_faults()
print(count_page_faults())
"""


def run(**variables: str) -> list[str]:
    base_env = {k: v for k, v in os.environ.items() if k not in heap._USER_SETTINGS}
    result = subprocess.run(
        [sys.executable, "-c", PAGE_FAULT_SCRIPT],
        env=base_env | {"NUMPY_MADVISE_HUGEPAGE": "0"} | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return result.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused_without_page_faults():
    is_enabled, num_faults = run()
    assert is_enabled == "True"
    assert int(num_faults) < 100
    is_enabled, num_faults = run(MALLOC_MMAP_MAX_="65536")  # the user's setting is kept
    assert is_enabled == "False"
    assert int(num_faults) > 10_000
