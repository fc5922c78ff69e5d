"""Names of worlds, and their hostnames: `shop.w17.localhost`, `shop.2.w17.localhost`.

A world is the state of the sites in one episode, on a server that many episodes share. It has a
slot, such as w17, which no other existing world shares: its browser has access to this slot only.
The next world of the slot has a new name (w17, 2.w17, 3.w17), so late requests of an earlier page
do not reach it. Browsers resolve .localhost to this machine without DNS.
"""

from __future__ import annotations

import itertools
import re

_HOSTNAME = re.compile(r"(?P<site>[a-z0-9-]+)\.(?P<world>(\d+\.)?w\d+)\.localhost(?::\d+)?")


class WorldNames:
    """Names of the existing worlds of a server. Not thread-safe."""

    def __init__(self) -> None:
        self._slots = itertools.count(1)
        self._free_slots: list[tuple[str, int]] = []  # (slot, number of worlds that it has had)

    def take(self) -> str:
        """Return the name of a new world."""
        if not self._free_slots:
            return f"w{next(self._slots)}"
        # Use the slot that was released last: its browser may be waiting for the next world.
        slot, num_worlds = self._free_slots.pop()
        return f"{num_worlds + 1}.{slot}"

    def release(self, name: str) -> None:
        """Make the slot of a deleted world available; call once for each name."""
        number, _, slot = name.rpartition(".")
        self._free_slots.append((slot, int(number or 1)))


def hostname(site: str, world: str) -> str:
    """Return the hostname of a site in a world."""
    return f"{site}.{world}.localhost"


def slot_origin(world: str, port: int) -> str:
    """Return the allow-list of a world's browser: all sites of its slot and nothing else."""
    slot = world.rpartition(".")[2]
    return f".{slot}.localhost:{port}"


def parse_host(host: str) -> tuple[str, str] | None:
    """Return site and world of a Host header; None if it names no world."""
    match = _HOSTNAME.fullmatch(host)
    return (match["site"], match["world"]) if match else None
