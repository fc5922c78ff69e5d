"""Run metadata: config, commit, hardware."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from absl import logging

from webagent_jax.config import ConfigError, RunConfig, from_config_dict
from webagent_jax.tracking import atomic_files
from webagent_jax.tracking.workdir_lock import LOCK_FILE

# Options that affect speed, memory and reports of a run, but define none of its results.
_EXECUTION_OPTIONS = (
    "bc.checkpoint_interval",
    "browser.call_timeout",
    "browser.executable_path",
    "browser.ignore_https_errors",
    "browser.max_episodes_per_process",
    "browser.max_rss_mib",
    "browser.navigation_timeout",
    "browser.num_processes",
    "browser.worker_type",
    "browser.ws_endpoints",
    "engine.kv_cache_mib",
    "engine.slots",
    "engine.steps_per_dispatch",
    "engine.tensor_parallel_size",
    "eval.screenshots_per_task",
    "grpo.checkpoint_interval",
    "guard.",
    "log.",
    "mesh.",
    "policy.endpoint.api_key_env",
    "policy.endpoint.concurrency",
    "policy.endpoint.retries",
    "policy.endpoint.timeout",
    "policy.endpoint.url",
    "policy.remat",
    "rollout.episode_timeout",
    "rollout.infra_retries",
    "rollout.max_concurrent_episodes",
    "suite.webarena.judge.api_key_env",
    "suite.webarena.judge.cache_dir",
    "suite.webarena.judge.json_schema",
    "suite.webarena.judge.url",
    "suite.webarena.replica_timeout",
)

# Those of them that must be equal in all processes, because they determine when processes call
# each other, or the program that they run together.
_COLLECTIVE_OPTIONS = (
    "bc.checkpoint_interval",
    "engine.tensor_parallel_size",
    "grpo.checkpoint_interval",
    "guard.",
    "mesh.",
    "policy.remat",
)

# Options that only training uses.
_TRAINING_OPTIONS = ("bc.", "grpo.")

# Files and folders that a run writes before its first result. Demonstrations are an input of BC,
# which accepts those of any config.
_START_FILES = {"config.json", "initial_params.json", "policy.json", "wandb-run.txt", LOCK_FILE}
_START_FOLDERS = {"demos", "phases", "tensorboard", "wandb"}

Command = Literal["quickstart", "train bc", "train grpo", "evaluate"]
"""Subcommand of `webagent` that writes a run."""


def init_workdir(workdir: Path, cfg: RunConfig, command: Command) -> None:
    """Create config.json with config, commit and hardware, or check that the run is the same.

    A run without results takes the new config, so a failed start does not occupy the workdir.
    Options that do not affect results, such as `engine.slots`, may differ. So may `grpo.updates` of
    M-GRPO with a constant learning rate schedule, but it must be at least the number of completed
    updates, and the warmup that results from it must be complete.

    Raises:
        ConfigError: the workdir cannot be written, or contains a run of another command or with
            another config; the message names an option.
    """
    path = workdir / "config.json"
    if path.exists() and _has_results(workdir):
        if command == "train grpo" and cfg.grpo.optimizer.schedule == "constant":
            _continue_with_updates(path, cfg)
        else:
            check_same_run(workdir, cfg, command)
        return
    content = {
        "command": command,
        # The folder of the run when it began, which makes its paths relative.
        "workdir": str(workdir),
        "config": dataclasses.asdict(cfg),
        "commit": commit(),
        # An endpoint may use the devices of this machine, and JAX would take their memory.
        "hardware": hardware() | (devices() if cfg.policy.kind == "weights" else {}),
    }
    atomic_files.make_workdir(workdir)
    atomic_files.write_json(path, content)


def read_config(workdir: Path) -> RunConfig:
    """Return the config of a run.

    Raises:
        ConfigError: config.json is not that of a run.
        FileNotFoundError: the folder has no config.json.
    """
    path = workdir / "config.json"
    content = atomic_files.read_json(path)
    if not isinstance(content, dict) or "config" not in content:
        raise ConfigError(f"{path} is not the config of a run: pass the --workdir of one")
    return from_config_dict(content["config"])


def policy_path(workdir: Path) -> str:
    """Return `policy.path` of a run, even if the run was moved together with the policy.

    Raises:
        FileNotFoundError: the folder contains no run.
    """
    content = atomic_files.read_json(workdir / "config.json")
    path = str(content["config"]["policy"]["path"])
    moved_path = os.path.normpath(workdir / _relative_path(path, content, workdir))
    return path if os.path.exists(path) or not os.path.exists(moved_path) else moved_path


def _has_results(workdir: Path) -> bool:
    """Return whether the workdir has files other than those of a start, its phases included."""
    return any(
        path.is_file()
        and path.name not in _START_FILES
        and _START_FOLDERS.isdisjoint(path.relative_to(workdir).parts)
        for path in workdir.rglob("*")
    )


def check_same_run(workdir: Path, cfg: RunConfig, command: Command) -> None:
    """Check that the run in the workdir has this command and config.

    Raises:
        ConfigError: it has others that define results; the message names an option.
    """
    previous = atomic_files.read_json(workdir / "config.json")
    if not isinstance(previous, dict) or not previous.keys() >= {"command", "config"}:
        raise ConfigError(
            f"{workdir / 'config.json'} is not the config of a run: choose another --workdir"
        )
    if previous["command"] != command:
        raise ConfigError(
            f"{workdir} contains a run of `webagent {previous['command']}`, "
            f"this is `webagent {command}`: choose another --workdir"
        )
    # config.json has lists where the config has tuples.
    config = _to_json_types(dataclasses.asdict(cfg))
    unused = _TRAINING_OPTIONS if command == "evaluate" else ()
    # The first difference is enough.
    for name, old, new in _differences(previous["config"], config):
        if name.startswith((*_EXECUTION_OPTIONS, *unused)):
            logging.warning("the run continues with %s=%r instead of %r", name, new, old)
            continue
        # A run that was moved together with its policy is the same run.
        if name == "policy.path" and _relative_path(old, previous, workdir) == os.path.relpath(
            new, workdir
        ):
            continue
        raise ConfigError(
            f"{workdir} contains a run with {name}={old!r}, this one has {new!r}: "
            "choose another --workdir, or delete that one"
        )


def check_collective_options(configs: Sequence[Mapping[str, Any]]) -> None:
    """Check that the options with collective effects are equal in all processes.

    Args:
        configs: config of each process, as JSON values.

    Raises:
        ConfigError: two configs differ; the message names an option.
    """
    for process, config in enumerate(configs):
        for name, first, other in _differences(configs[0], config):
            if name.startswith(_COLLECTIVE_OPTIONS):
                raise ConfigError(
                    f"process {process} has {name}={other!r}, process 0 has {first!r}: set "
                    "the same value for all processes"
                )


def _continue_with_updates(path: Path, cfg: RunConfig) -> None:
    """Check a run of M-GRPO with a constant schedule, and write its new `grpo.updates`."""
    content = atomic_files.read_json(path)
    updates = cfg.grpo.updates
    with contextlib.suppress(TypeError, KeyError):  # the check below reports other files
        updates = content["config"]["grpo"]["updates"]
    same_updates = dataclasses.replace(cfg, grpo=dataclasses.replace(cfg.grpo, updates=updates))
    check_same_run(path.parent, same_updates, "train grpo")
    # Before config.json changes: the run continues with the previous number.
    _check_updates(path.parent, cfg, updates)
    if updates != cfg.grpo.updates:
        logging.warning("the run continues to update %s instead of %s", cfg.grpo.updates, updates)
        content["config"]["grpo"]["updates"] = cfg.grpo.updates
        # Other processes compare their config with this file, so all need the same number.
        atomic_files.write_json(path, content)


def _check_updates(workdir: Path, cfg: RunConfig, previous: int) -> None:
    """Check `grpo.updates` of a run with a constant schedule and `previous` updates.

    Raises:
        ConfigError: more updates are complete, or the completed ones end within the new warmup,
            so the learning rate would fall and rise again.
    """
    updates = cfg.grpo.updates
    # The name of a checkpoint is the number of completed updates.
    names = [path.name for path in (workdir / "checkpoints").glob("*")]
    checkpoints = sorted(int(name) for name in names if name.isdigit())
    completed = max(checkpoints, default=0)
    if updates < completed:
        raise ConfigError(
            f"{workdir} has completed {completed} updates, more than grpo.updates={updates}: set "
            f"at least {completed}, or export checkpoint {' or '.join(map(str, checkpoints))} with "
            "`webagent export --update`"
        )
    # A fraction of the updates is the same fraction of the optimizer steps.
    if updates != previous and 0 < completed < cfg.grpo.optimizer.warmup_fraction * updates:
        raise ConfigError(
            f"with grpo.updates={updates}, the learning rate warmup is longer than the {completed} "
            f"updates that {workdir} has completed: set grpo.updates={previous}, or choose "
            "another --workdir"
        )


def _relative_path(path: str, content: Mapping[str, Any], workdir: Path) -> str:
    """Return a path of config.json relative to the folder that the run began in."""
    return os.path.relpath(path, content.get("workdir", str(workdir)))


def commit() -> str:
    """Return the commit of the source tree, `+` if modified; empty outside a checkout."""
    try:
        # An installed package may be in the folder of another project, which does not track it.
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        # --exclude=* ignores tags, so the output is a commit in every clone.
        return _git("describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*args: str) -> str:
    """Return the output of a git command in the folder of this file."""
    result = subprocess.run(
        ["git", *args],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
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


def devices() -> dict[str, Any]:
    """Return JAX version, and number and kind of the devices of all processes."""
    import jax

    kinds = Counter(device.device_kind for device in jax.devices())
    return {
        "jax": jax.__version__,
        "devices": ", ".join(f"{count} x {kind}" for kind, count in kinds.items()),
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
