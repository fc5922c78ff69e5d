"""Python and its packages, the folders that a run writes to, and how many files it may open."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from webagent_jax.config import RunConfig
from webagent_jax.doctor.findings import Finding, broken, gib, ok, warning

_PACKAGE = "webagent_jax"
_NAMED = ("jax", "flax", "orbax-checkpoint", "playwright", "transformers")
_TEMPORARY = 2**30  # bytes: profiles and shared memory of Chromium
_SHARED = 64 * 2**20  # bytes, which is what Docker gives
# Of Chromium's first process, which has most of them open: on MiniWoB++ 59 with one context and 6
# more for each further one; pages of real sites hold more connections.
_FILES_AT_LEAST = 128
_FILES_PER_CONTEXT = 16


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    yield _packages()
    yield _writable(workdir)
    yield _temporary()
    yield from _shared_memory()
    yield _open_files(cfg)


def _packages() -> Finding:
    wrong = []
    for line in _requirements():
        needed = Requirement(line)
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            continue
        version = _version(needed.name)
        if not version:
            wrong.append(f"{needed} is missing")
        elif not needed.specifier.contains(version, prereleases=True):
            wrong.append(f"{needed} is needed, {version} is there")
    if wrong:
        return broken("packages", ", ".join(wrong), f"pip install --upgrade {_PACKAGE}")
    named = ", ".join(f"{name} {_version(name)}" for name in _NAMED)
    return ok("packages", f"Python {platform.python_version()}, {named}")


def _requirements() -> list[str]:
    try:
        return metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from a checkout
        return []


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _writable(workdir: Path) -> Finding:
    folder = existing(workdir)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return broken(
            "workdir",
            f"{folder} cannot be written to: {error.strerror}",
            "choose another --workdir, or mend the rights of this one",
        )
    return ok("workdir", f"{workdir} can be written, {gib(shutil.disk_usage(folder).free)} free")


def existing(workdir: Path) -> Path:
    """The folder itself, or what is there of the way to it."""
    path = workdir.absolute()
    return next(part for part in (path, *path.parents) if part.exists())


def _temporary() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < _TEMPORARY:
        return warning(
            "temporary files",
            f"{folder} has {gib(free)} free; Chromium keeps its shared memory there",
            "make room, or set TMPDIR to a folder with 1 GiB or more",
        )
    return ok("temporary files", f"{folder} has {gib(free)} free")


def _shared_memory() -> Iterator[Finding]:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return
    size = shutil.disk_usage(folder).total
    if size <= _SHARED:
        yield warning(
            "/dev/shm",
            f"{gib(size)}: too little for collectives between the GPUs of a host (NCCL)",
            "docker run --shm-size=1g",
        )
    else:
        yield ok("/dev/shm", gib(size))


def _open_files(cfg: RunConfig) -> Finding:
    contexts = cfg.rollout.contexts
    allowed, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_AT_LEAST + _FILES_PER_CONTEXT * contexts
    if allowed == resource.RLIM_INFINITY or allowed >= needed:
        return ok("open files", f"{allowed} allowed, about {needed} for {contexts} contexts")
    more = highest == resource.RLIM_INFINITY or highest >= needed
    return warning(
        "open files",
        f"{allowed} allowed, {contexts} contexts need about {needed}",
        f"ulimit -n {needed}" if more else "raise nofile in /etc/security/limits.conf",
    )


def available_bytes() -> int:
    """Host memory that a new process may take: of the machine, or of its control group."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free
