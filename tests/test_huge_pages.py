"""Tests of the restart with huge pages: a large array causes few page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from webagent_jax import huge_pages

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PAGE_FAULT_SCRIPT = """
import os, resource, sys
from webagent_jax import huge_pages

huge_pages.restart_with_huge_pages()
import numpy as np

start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.empty(64 << 20, np.uint8).fill(1)  # 16,384 pages of 4 KiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
print(os.environ.get("GLIBC_TUNABLES", ""), *sys.argv[1:])
"""


def run(*args: str, **variables: str) -> list[str]:
    base_env = {k: v for k, v in os.environ.items() if k not in huge_pages._USER_SETTINGS}
    result = subprocess.run(
        [sys.executable, "-c", PAGE_FAULT_SCRIPT, *args],
        env=base_env | {"NUMPY_MADVISE_HUGEPAGE": "0"} | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return result.stdout.splitlines()


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc"
    or not HUGE_PAGES.exists()
    or "[madvise]" not in HUGE_PAGES.read_text(),
    reason="huge pages are always used or not available",
)
def test_restarted_program_has_few_page_faults_and_same_arguments():
    num_faults, rest = run("--name=a b", "c")
    assert int(num_faults) < 1_000
    # Browsers do not inherit the setting.
    assert rest == " --name=a b c"
    num_faults, rest = run(GLIBC_TUNABLES="glibc.malloc.hugetlb=0")  # the user's setting is kept
    assert int(num_faults) > 10_000
    assert rest.strip() == "glibc.malloc.hugetlb=0"
