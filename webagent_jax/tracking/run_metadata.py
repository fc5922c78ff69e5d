"""Run metadata: config, commit, hardware."""

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


def init_workdir(workdir: Path, cfg: RunConfig) -> None:
    """Create the workdir with config, commit and hardware, or check that its config is the same.

    Raises:
        ConfigError: the workdir contains a run with another config; the message names an option.
    """
    path = workdir / "config.json"
    config = dataclasses.asdict(cfg)
    if path.exists():
        previous = atomic_files.read_json(path)["config"]
        # The first difference is enough. config.json has lists where the config has tuples.
        for name, old, new in _differences(previous, _to_json_types(config)):
            raise ConfigError(
                f"{workdir} contains a run with {name}={old!r}, this one has {new!r}: "
                "choose another --workdir, or delete that one"
            )
        return
    workdir.mkdir(parents=True, exist_ok=True)
    atomic_files.write_json(path, {"config": config, "commit": commit(), "hardware": hardware()})


def commit() -> str:
    """Return the commit of the source tree, `+` if modified; empty outside a checkout."""
    try:
        # --exclude=* ignores tags, so the output is a commit in every clone.
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


def hardware() -> dict[str, Any]:
    """Return processor, cores, memory in GiB and Python version of the machine."""
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


def _to_json_types(value: Any) -> Any:
    """Return the value after a round trip through JSON: tuples become lists."""
    if isinstance(value, Mapping):
        return {k: _to_json_types(v) for k, v in value.items()}
    return [_to_json_types(v) for v in value] if isinstance(value, list | tuple) else value


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b
