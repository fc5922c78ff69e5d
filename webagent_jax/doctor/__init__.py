"""Is everything there that a run needs? Each check looks at one part of the machine or the config.

Every check is a process of its own: one that hangs is ended, one that crashes is told like any
other trouble, and none can take the rest with it.
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
from webagent_jax.doctor.findings import Finding, Verdict, broken

__all__ = ["CHECKS", "Finding", "Verdict", "examine", "is_well", "table"]

CHECKS = ("machine", "browser", "sites", "weights", "devices", "endpoints")
"""The modules beside this one, each with a `check(cfg, workdir)`."""

_TIMEOUT = 120.0  # seconds for one check
_LAST_WORDS = 300  # characters


def examine(
    cfg: RunConfig,
    workdir: Path,
    *,
    checks: Sequence[str] = CHECKS,
    timeout: float = _TIMEOUT,
) -> list[Finding]:
    """What the checks find, in their order. Never raises, and ends in time.

    Args:
        cfg: of the run that is planned.
        workdir: of it; need not be there, and is left as it is.
        checks: some of CHECKS.
        timeout: seconds for each of them.
    """
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda name: _apart(name, cfg, workdir, timeout), checks)
        return [finding for each in found for finding in each]


def is_well(findings: Sequence[Finding]) -> bool:
    """Whether nothing is broken."""
    return all(finding.verdict is not Verdict.BROKEN for finding in findings)


def table(findings: Sequence[Finding]) -> str:
    """For people: a line for each finding, and one below it on how to mend it."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.verdict:7}  {finding.subject:{width}}  {finding.what}")
        if finding.mend:
            lines.append(f"{'':7}  {'':{width}}  -> {finding.mend}")
    return "\n".join(lines)


def _apart(name: str, cfg: RunConfig, workdir: Path, timeout: float) -> list[Finding]:
    """What the check finds, until it ends or its time does."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "webagent_jax.doctor", name, str(workdir)],
                input=json.dumps(dataclasses.asdict(cfg)),
                stdout=said,
                stderr=complaints,  # a file: a browser that outlives the check may hold a pipe open
                text=True,
                timeout=timeout,
                # The memory of a GPU may be in use by a run that is going on.
                env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
                check=False,
            ).returncode
            trouble = f"the check ended with {_ending(code)}" if code else ""
        except subprocess.TimeoutExpired:
            trouble = f"the check was not done in {timeout:g} s"
        findings = list(_read(said))
        if trouble:
            words = _last_words(complaints)
            findings.append(broken(name, trouble, f"its last words: {words or 'none'}"))
    return findings


def _read(said: IO[str]) -> Iterator[Finding]:
    said.seek(0)
    for line in said:
        if line.endswith("\n"):  # else its writer was ended in the middle of it
            told = json.loads(line)
            yield Finding(told["subject"], Verdict(told["verdict"]), told["what"], told["mend"])


def _last_words(complaints: IO[str]) -> str:
    complaints.seek(0)
    lines = [line.strip() for line in complaints if line.strip()]
    return lines[-1][-_LAST_WORDS:] if lines else ""


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
