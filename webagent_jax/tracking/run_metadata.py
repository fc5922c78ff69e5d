"""Where figures come from: config, commit, hardware."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.tracking import atomic_files


def open_workdir(workdir: Path, cfg: RunConfig) -> None:
    """Makes the folder of a run and writes config and commit, or checks that it is the same run.

    Raises:
        ConfigError: the folder holds a run with another config; names an option that differs.
    """
    path = workdir / "config.json"
    config = dataclasses.asdict(cfg)
    if path.exists():
        before = atomic_files.read_json(path)["config"]
        for name, old, new in _differences(before, _plain(config)):
            raise ConfigError(
                f"{workdir} holds a run with {name}={old!r}, this one has {new!r}: "
                "choose another --workdir, or delete that one"
            )
        return
    workdir.mkdir(parents=True, exist_ok=True)
    atomic_files.write_json(path, {"config": config, "commit": commit(), "hardware": hardware()})


def commit() -> str:
    """The commit of the source tree, `+` when changed since; empty outside a checkout."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip()


def hardware() -> dict[str, Any]:
    """Of the machine: processor, cores, memory in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _plain(value: Any) -> Any:
    """As JSON would give it back."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{where}{name}.")
        elif a != b:
            yield f"{where}{name}", a, b
