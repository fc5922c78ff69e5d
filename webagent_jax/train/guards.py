"""Alarms over an update's numbers, so that a run that goes wrong stops while it can be saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from webagent_jax.config import GuardConfig


class GuardTripped(RuntimeError):
    """A limit was crossed too often in a row. The message names limit and updates."""


class Guards:
    """Counts the updates in a row beyond each limit of the config."""

    def __init__(self, cfg: GuardConfig) -> None:
        self._cfg = cfg
        self._in_a_row: dict[str, int] = {}

    @property
    def quiet(self) -> bool:
        """Whether the last update kept all limits: only then its checkpoint is a good one."""
        return not any(self._in_a_row.values())

    def check(self, update: int, metrics: Mapping[str, float]) -> list[str]:
        """What to warn of, a line each.

        Raises:
            GuardTripped: a limit was crossed `patience` times in a row, this one included.
        """
        warnings = []
        for name, crossed, told in self._limits(metrics):
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if crossed else 0
            if crossed:
                warnings.append(f"update {update}: {told}")
            if self._in_a_row[name] >= self._cfg.patience:
                raise GuardTripped(
                    f"stopped after update {update}: {told}, {self._in_a_row[name]} updates in a "
                    f"row. The last checkpoint is from before the first of them: {_remedy(name)}"
                )
        return warnings

    def _limits(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, bool, str]]:
        """Name of the limit, whether it was crossed, and how to say it."""
        cfg = self._cfg
        below = {"entropy": cfg.entropy}
        above = {"kl": cfg.kl, "sampler_gap": cfg.sampler_gap, "repetition": cfg.repetition}
        if metrics.get("episodes"):
            lost = metrics.get("infra", 0.0) / metrics["episodes"]
            message = f"{lost:.0%} of the episodes are lost to browsers or sites (INFRA)"
            yield "infra", bool(cfg.infra) and lost > cfg.infra, message
        for name, limit in below.items():
            value = metrics.get(name, math.inf)
            yield name, bool(limit) and value < limit, f"{name} {value:.3g} is below {limit:g}"
        for name, limit in above.items():
            value = metrics.get(name, 0.0)
            yield name, bool(limit) and value > limit, f"{name} {value:.3g} is above {limit:g}"


def _remedy(name: str) -> str:
    """Return how to go on after a guard has stopped the run."""
    if name == "infra":
        return (
            "check the sites (launch/doctor.py) and run the same command again, which resumes "
            "there; guard.infra=0 turns this guard off"
        )
    return (
        "make a policy of it with launch/export_weights.py, and begin another run from that with a "
        f"lower learning rate, or with another guard.{name}"
    )
