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
    open: tuple[int, ...]  # groups that were begun and that no update has learned from

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Position:
        """What `saved` left to this host, empty where a run begins.

        A run may go on with other hosts than it had: then the groups that some of them had not come
        to are dealt anew, and none is skipped or learned twice.
        """
        count, this = hosts.count(), hosts.this()
        if not saved:
            return cls(0, this, ())
        everyone: Sequence[Mapping[str, Any]] = saved["hosts"]
        if len(everyone) == count:
            return cls(saved["update"], everyone[this]["drawn"], tuple(everyone[this]["open"]))
        ends = [host["drawn"] for host in everyone]
        behind = (n for n in range(min(ends), max(ends)) if n >= ends[n % len(ends)])
        first = -(-max(ends) // count) * count  # numbers of this host are `this` modulo `count`
        begun = (n for host in everyone for n in host["open"])
        left = sorted([*begun, *behind, *range(max(ends), first)])
        return cls(saved["update"], first + this, tuple(left[this::count]))

    @staticmethod
    def saved(update: int, groups: Groups) -> dict[str, Any]:
        """To be kept with the checkpoint of an update; all hosts call it together."""
        mine = {"drawn": groups.drawn, "open": list(groups.open)}
        return {"update": update, "hosts": hosts.gather(mine)}
