"""Where a training stands in its sequence of tasks, over all its hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webagent_jax.rollout import Groups
from webagent_jax.train import hosts


@dataclass(frozen=True, slots=True)
class Position:
    """That of one host: it draws every hosts.count()-th number, and no two the same."""

    update: int  # updates done
    drawn: int  # number of its next draw
    open: Mapping[int, int]  # groups begun that no update has learned from, and their versions
    backlog: tuple[int, ...]  # numbers below `drawn` that it has not begun

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Position:
        """What `saved` left to this host, empty where a run begins.

        A run may go on with other hosts than it had: then open groups and the numbers that some of
        them had not come to are dealt anew, and none is skipped or learned twice.
        """
        count, this = hosts.count(), hosts.this()
        if not saved:
            return cls(0, this, {}, ())
        everyone: Sequence[Mapping[str, Any]] = saved["hosts"]
        if len(everyone) == count:
            mine = everyone[this]
            return cls(saved["update"], mine["drawn"], dict(mine["open"]), tuple(mine["backlog"]))
        ends = [host["drawn"] for host in everyone]
        behind = (n for n in range(min(ends), max(ends)) if n >= ends[n % len(ends)])
        first = -(-max(ends) // count) * count  # numbers of this host are `this` modulo `count`
        before = (n for host in everyone for n in host["backlog"])
        backlog = sorted([*before, *behind, *range(max(ends), first)])
        # By version first, so that every host gets as many of each age.
        groups = sorted((version, n) for host in everyone for n, version in host["open"])
        share = {n: version for version, n in groups[this::count]}
        return cls(saved["update"], first + this, share, tuple(backlog[this::count]))

    @staticmethod
    def saved(update: int, groups: Groups) -> dict[str, Any]:
        """To be kept with the checkpoint of an update; all hosts call it together."""
        mine = {
            "drawn": groups.drawn,
            "open": list(groups.open.items()),
            "backlog": groups.backlog,
        }
        return {"update": update, "hosts": hosts.gather(mine)}
