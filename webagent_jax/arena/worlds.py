"""Worlds: each has its own state of every site, and costs nothing until it differs.

All worlds read one seed image of a database. The first write of a world copies the image into a
database of its own, a memory copy of a few megabytes.
"""

from __future__ import annotations

import copy
import itertools
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webagent_jax.arena import database


@dataclass(slots=True)
class Session:
    """What a site remembers of the one browser of a world, as others do by a cookie."""

    account: int | None  # who is signed in
    flashes: list[str] = field(default_factory=list)  # told on the next page
    notes: dict[str, Any] = field(default_factory=dict)  # of a checkout under way, a comparison


class World:
    """The state of all sites, as one episode has made it."""

    def __init__(self, name: str, seeds: Mapping[str, Seed], accounts: Mapping[str, int | None]):
        self.name = name
        self.sessions = {site: Session(account) for site, account in accounts.items()}
        self._seeds = seeds
        self._own: dict[str, sqlite3.Connection] = {}

    def reader(self, name: str) -> sqlite3.Connection:
        """A database to look at: the seed's until something was written. It refuses writes."""
        own = self._own.get(name)
        if own is None:
            return self._seeds[name].connection
        own.execute("PRAGMA query_only = ON")
        return own

    def writer(self, name: str) -> sqlite3.Connection:
        """A database to change: this world's own."""
        if name not in self._own:
            self._own[name] = database.connect(self._seeds[name].image)
        own = self._own[name]
        own.execute("PRAGMA query_only = OFF")
        return own

    def copy(self, name: str) -> World:
        """Another world in the same state."""
        twin = World(name, self._seeds, {})
        twin.sessions = copy.deepcopy(self.sessions)
        twin._own = {key: database.connect(own.serialize()) for key, own in self._own.items()}
        return twin

    def close(self) -> None:
        for connection in self._own.values():
            connection.close()


class Seed:
    """The image of a database, and the one connection through which everybody reads it."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        self.connection = database.connect_read_only(image)


class Worlds:
    """The live worlds of one server. Belongs to one thread, as its connections do.

    A world has a place, w1 or the like, which no other live one shares: a browser is held to it.
    The next world of the place has a name of its own nevertheless (w1, 2.w1, 3.w1), so that what
    an earlier page still asks for finds nothing.
    """

    def __init__(self, images: Mapping[str, bytes], accounts: Mapping[str, int | None]) -> None:
        """`images` by database; `accounts` signed in at first, by site."""
        self._seeds = {name: Seed(image) for name, image in images.items()}
        self._accounts = accounts
        self._live: dict[str, World] = {}
        self._places = itertools.count(1)
        self._left: list[tuple[str, int]] = []  # (place, worlds it has had)

    def new(self) -> World:
        return self._add(World(self._name(), self._seeds, self._accounts))

    def copy(self, name: str) -> World:
        """Raises KeyError when there is no such world."""
        return self._add(self._live[name].copy(self._name()))

    def drop(self, name: str) -> None:
        """Dropping twice is fine."""
        world = self._live.pop(name, None)
        if world is not None:
            world.close()
            number, _, place = name.rpartition(".")
            self._left.append((place, int(number or 1)))

    def get(self, name: str) -> World | None:
        return self._live.get(name)

    def __len__(self) -> int:
        return len(self._live)

    def _name(self) -> str:
        if not self._left:
            return f"w{next(self._places)}"
        place, worlds = self._left.pop()  # the one left last: its browser may wait for the next
        return f"{worlds + 1}.{place}"

    def _add(self, world: World) -> World:
        self._live[world.name] = world
        return world
