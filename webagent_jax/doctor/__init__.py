"""Checks of everything that a run needs, on this machine and in its config.

Each check runs in its own process. A check that hangs is killed and one that crashes becomes a
result, so that neither affects the other checks.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from webagent_jax.config import RunConfig
from webagent_jax.doctor.check_result import CheckResult, CheckStatus, failure

__all__ = ["CHECKS", "CheckResult", "CheckStatus", "all_passed", "run_checks", "table"]

CHECKS = ("machine", "browser", "sites", "weights", "devices", "endpoints")
"""Names of the checks: modules of this package, each with a function `check(cfg, workdir)`."""

_DEVICE_CHECK = "devices"  # the only check that computes on the devices
_TIMEOUT = 120.0  # seconds per check
_MAX_STDERR_CHARS = 300


def run_checks(
    cfg: RunConfig,
    workdir: Path,
    *,
    checks: Sequence[str] = CHECKS,
    timeout: float = _TIMEOUT,
) -> list[CheckResult]:
    """Run the checks in parallel and return their results in the order of `checks`; never raise.

    Args:
        cfg: config of the planned run.
        workdir: work directory of the planned run; need not exist, and is not modified.
        checks: names from CHECKS.
        timeout: seconds per check.
    """
    # At most one check per core. `map` keeps the order of the checks.
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        results_of_checks = executor.map(
            lambda name: _run_in_subprocess(name, cfg, workdir, timeout), checks
        )
        return [result for results in results_of_checks for result in results]


def all_passed(results: Sequence[CheckResult]) -> bool:
    """Return whether no result is an error."""
    return all(result.status is not CheckStatus.ERROR for result in results)


def table(results: Sequence[CheckResult]) -> str:
    """Return the results as text: one line each, followed by the fix on a line of its own."""
    width = max((len(result.subject) for result in results), default=0)
    lines = []
    for result in results:
        lines.append(f"{result.status:7}  {result.subject:{width}}  {result.description}")
        if result.fix:
            lines.append(f"{'':7}  {'':{width}}  -> {result.fix}")
    return "\n".join(lines)


def _run_in_subprocess(
    name: str, cfg: RunConfig, workdir: Path, timeout: float
) -> list[CheckResult]:
    """Return the results that the check reports before it exits or times out."""
    # Another run may be using the memory of the GPU.
    env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if name != _DEVICE_CHECK:
        # Only one process at a time can use a TPU.
        env["JAX_PLATFORMS"] = "cpu"
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "webagent_jax.doctor", name, str(workdir)],
                input=json.dumps(dataclasses.asdict(cfg)),
                stdout=stdout,
                # A browser that outlives the check could hold a pipe open, but not a file.
                stderr=stderr,
                text=True,
                timeout=timeout,
                env=env,
                check=False,
            ).returncode
            problem = f"the check exited with {_format_exit_code(code)}" if code else ""
        except subprocess.TimeoutExpired:
            problem = f"the check did not finish in {timeout:g} s"
        # Read after a timeout too: results before the hang are valid.
        results = list(_read_results(stdout))
        if problem:
            last_line = _last_line(stderr)
            results.append(
                failure(name, problem, f"see the last line of its stderr: {last_line or 'none'}")
            )
    return results


def _read_results(stdout: IO[str]) -> Iterator[CheckResult]:
    stdout.seek(0)
    for line in stdout:
        if line.endswith("\n"):  # a check that is killed may leave a partial line
            fields = json.loads(line)
            yield CheckResult(
                fields["subject"],
                CheckStatus(fields["status"]),
                fields["description"],
                fields["fix"],
            )


def _last_line(stderr: IO[str]) -> str:
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    return lines[-1][-_MAX_STDERR_CHARS:] if lines else ""


def _format_exit_code(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
