"""Check of the machine: Python packages, writable folders, shared memory, limit of open files."""

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
from webagent_jax.doctor.check_result import CheckResult, failure, gib, ok, warning

_PACKAGE = "webagent_jax"
_REPORTED_PACKAGES = ("jax", "flax", "orbax-checkpoint", "playwright", "transformers")
_MIN_TEMPORARY_BYTES = 2**30  # profiles and shared memory of Chromium
_DOCKER_SHARED_MEMORY = 64 * 2**20  # bytes, Docker's default
# Files open in Chromium's first process, which has the most. On MiniWoB++ it has 59 with one
# context and 6 for each further context; pages of real sites open more connections.
_BASE_OPEN_FILES = 128
_OPEN_FILES_PER_CONTEXT = 16


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the machine."""
    yield _check_packages()
    yield _check_workdir(workdir)
    yield _check_temporary_files()
    yield from _check_shared_memory()
    yield _check_open_files(cfg)


def _check_packages() -> CheckResult:
    problems = []
    for line in _requirements():
        requirement = Requirement(line)
        # Requirements of extras and of other platforms do not apply.
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = _installed_version(requirement.name)
        if not version:
            problems.append(f"{requirement} is missing")
        elif not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement} is needed, {version} is installed")
    if problems:
        return failure("packages", ", ".join(problems), f"run pip install --upgrade {_PACKAGE}")
    versions = ", ".join(f"{name} {_installed_version(name)}" for name in _REPORTED_PACKAGES)
    return ok("packages", f"Python {platform.python_version()}, {versions}")


def _requirements() -> list[str]:
    try:
        return metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from a checkout
        return []


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _check_workdir(workdir: Path) -> CheckResult:
    folder = nearest_existing_folder(workdir)
    try:
        # A file is written, because permission bits do not show read-only mounts and quotas.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return failure(
            "workdir",
            f"{folder} cannot be written to: {error.strerror}",
            "choose another --workdir, or fix the permissions of this one",
        )
    return ok("workdir", f"{workdir} is writable, {gib(shutil.disk_usage(folder).free)} free")


def nearest_existing_folder(workdir: Path) -> Path:
    """Return the folder itself or its nearest ancestor that exists."""
    path = workdir.absolute()
    return next(part for part in (path, *path.parents) if part.exists())


def _check_temporary_files() -> CheckResult:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < _MIN_TEMPORARY_BYTES:
        return warning(
            "temporary files",
            f"{folder} has {gib(free)} free; Chromium stores its shared memory there",
            "free disk space, or set TMPDIR to a folder with at least 1 GiB free",
        )
    return ok("temporary files", f"{folder} has {gib(free)} free")


def _check_shared_memory() -> Iterator[CheckResult]:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return
    size = shutil.disk_usage(folder).total
    # Chromium does not use /dev/shm with Playwright's switches, but NCCL does.
    if size <= _DOCKER_SHARED_MEMORY:
        yield warning(
            "/dev/shm",
            f"{gib(size)}: too small for NCCL collectives between the GPUs of one machine",
            "start the container with docker run --shm-size=1g",
        )
    else:
        yield ok("/dev/shm", gib(size))


def _check_open_files(cfg: RunConfig) -> CheckResult:
    num_contexts = cfg.rollout.max_concurrent_episodes
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_required = _BASE_OPEN_FILES + _OPEN_FILES_PER_CONTEXT * num_contexts
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= num_required:
        return ok(
            "open files", f"{soft_limit} allowed, about {num_required} for {num_contexts} contexts"
        )
    can_raise = hard_limit == resource.RLIM_INFINITY or hard_limit >= num_required
    return warning(
        "open files",
        f"{soft_limit} allowed, {num_contexts} contexts need about {num_required}",
        f"run ulimit -n {num_required}"
        if can_raise
        else "raise nofile in /etc/security/limits.conf",
    )


def available_bytes() -> int:
    """Return the bytes of host memory available to a new process, within its control group."""
    # macOS reports only the total memory.
    name = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf(name)
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        # MemAvailable includes the page cache, which the kernel frees on demand.
        free = int(lines["MemAvailable"].split()[0]) * 1024
    # In a container, the limit of the control group may be below the free memory of the host.
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and limit.read_text().strip() != "max":
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # As above, without the page cache.
        in_use = int(used.read_text()) - int(stat.get("inactive_file", 0))
        free = min(free, int(limit.read_text()) - in_use)
    return free
