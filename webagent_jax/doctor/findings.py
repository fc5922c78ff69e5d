"""Result of a check: status, description and fix."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from webagent_jax.config import ConfigError


class CheckStatus(enum.StrEnum):
    """Severity of a finding; a run fails with an ERROR and may fail with a WARNING."""

    OK = "OK"
    WARNING = "warning"
    ERROR = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    subject: str  # checked component, one or two words
    verdict: CheckStatus
    what: str  # description, one line
    fix: str = ""  # instruction that fixes the problem, one line; empty if there is none


def ok(subject: str, what: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(subject, CheckStatus.OK, what)


def warning(subject: str, what: str, mend: str) -> Finding:
    """Return a finding that may make a run fail; `mend` is its fix."""
    return Finding(subject, CheckStatus.WARNING, what, mend)


def broken(subject: str, what: str, mend: str) -> Finding:
    """Return a finding that makes a run fail; `mend` is its fix."""
    return Finding(subject, CheckStatus.ERROR, what, mend)


def from_error(subject: str, error: Exception, mend: str = "") -> Finding:
    """Return the finding of an error whose message states the problem, then a semicolon, the fix.

    Further lines of a ConfigError belong to the fix; those of other errors are for logs.

    Args:
        subject: checked component.
        error: error to report.
        mend: fix for messages without one.
    """
    first, _, details = (str(error) or type(error).__name__).partition("\n")
    what, _, rest = first.partition("; ")
    if isinstance(error, ConfigError):
        rest = " ".join([*rest.split(), *details.split()])
    return broken(subject, what, rest or mend or "fix the problem in this message")


def gib(size: float) -> str:
    """Return a number of bytes as text in GiB, or in MiB below 0.1 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"
