"""Huge pages for the large arrays of XLA on CPU, a setting of glibc malloc."""

from __future__ import annotations

import os
import platform
import sys

_SETTING = "glibc.malloc.hugetlb=1"
_MIN_GLIBC = (2, 35)  # first version with the setting
_USER_SETTINGS = ("GLIBC_TUNABLES", "LD_PRELOAD")


def restart_with_huge_pages() -> None:
    """Restart this program, in the same process, with huge pages for large arrays.

    XLA on CPU allocates the temporary arrays of a program at each call, and Linux fills them with
    zeros, which costs little in pages of 2 MiB instead of 4 KiB (docs/results.md). glibc reads the
    setting only when a program starts, so call this before other work.

    Does nothing if the C library is not glibc 2.35 or later, or if the environment sets
    GLIBC_TUNABLES or LD_PRELOAD.
    """
    if os.environ.get("GLIBC_TUNABLES") == _SETTING:
        # The setting applies already; browsers do not need it.
        del os.environ["GLIBC_TUNABLES"]
        return
    if not _has_setting() or any(os.environ.get(name) for name in _USER_SETTINGS):
        return
    os.environ["GLIBC_TUNABLES"] = _SETTING
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _has_setting() -> bool:
    library, version = platform.libc_ver()
    return library == "glibc" and tuple(map(int, version.split(".")[:2])) >= _MIN_GLIBC
