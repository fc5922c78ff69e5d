"""What a check says: it is well, it may be trouble, or it is broken; and how to mend it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from webagent_jax.config import ConfigError


class Verdict(enum.StrEnum):
    OK = "OK"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str  # in a word or two
    verdict: Verdict
    what: str  # in one line
    mend: str = ""  # in one line; empty where nothing is to mend


def ok(subject: str, what: str) -> Finding:
    return Finding(subject, Verdict.OK, what)


def warning(subject: str, what: str, mend: str) -> Finding:
    return Finding(subject, Verdict.WARNING, what, mend)


def broken(subject: str, what: str, mend: str) -> Finding:
    return Finding(subject, Verdict.BROKEN, what, mend)


def from_error(subject: str, error: Exception, mend: str = "") -> Finding:
    """Of a message that says what is wrong, and after a semicolon how to mend it.

    Of several lines a ConfigError goes on with how to mend it, others with what is for logs.
    """
    first, _, others = (str(error) or type(error).__name__).partition("\n")
    what, _, rest = first.partition("; ")
    if isinstance(error, ConfigError):
        rest = " ".join([*rest.split(), *others.split()])
    return broken(subject, what, rest or mend or "look at what it says")


def gib(size: float) -> str:
    """Bytes, to be read."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"
