"""Result of a check: status, description and fix."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from webagent_jax.config import ConfigError


class CheckStatus(enum.StrEnum):
    """Severity of a result; a run fails with an ERROR and may fail with a WARNING."""

    OK = "OK"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    subject: str  # checked component, one or two words
    status: CheckStatus
    description: str  # result of the check, one line
    fix: str = ""  # instruction that fixes the problem, one line; empty if there is none


def ok(subject: str, description: str) -> CheckResult:
    """Return a result without a problem."""
    return CheckResult(subject, CheckStatus.OK, description)


def warning(subject: str, description: str, fix: str) -> CheckResult:
    """Return a result that may make a run fail; `fix` repairs it."""
    return CheckResult(subject, CheckStatus.WARNING, description, fix)


def failure(subject: str, description: str, fix: str) -> CheckResult:
    """Return a result that makes a run fail; `fix` repairs it."""
    return CheckResult(subject, CheckStatus.ERROR, description, fix)


def from_error(subject: str, error: Exception, fix: str = "") -> CheckResult:
    """Return the result of an error whose message states the problem, then a semicolon, the fix.

    Further lines of a ConfigError belong to the fix; those of other errors are for logs.

    Args:
        subject: checked component.
        error: error to report.
        fix: instruction for messages without one.
    """
    # Messages have the form "problem; fix", so the first line is cut at the semicolon.
    first, _, details = (str(error) or type(error).__name__).partition("\n")
    description, _, rest = first.partition("; ")
    if isinstance(error, ConfigError):
        rest = " ".join([*rest.split(), *details.split()])
    return failure(subject, description, rest or fix or "fix the problem in this message")


def gib(size: float) -> str:
    """Return a number of bytes as text in GiB, or in MiB below 0.1 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"
