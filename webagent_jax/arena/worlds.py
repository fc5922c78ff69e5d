"""Worlds: separate states of all sites, copied on the first write.

All worlds read one seed image of a database. The first write of a world copies the image into its
own database, a memory copy of a few megabytes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webagent_jax.arena import database
from webagent_jax.world_names import WorldNames


@dataclass(slots=True)
class SiteSession:
    """Session of a world's only browser on a site; it takes the place of a cookie."""

    account_id: int | None  # id of the signed-in account; None if signed out
    flashes: list[str] = field(default_factory=list)  # messages for the next page
    pending_inputs: dict[str, Any] = field(
        default_factory=dict
    )  # pending inputs, such as a checkout


class World:
    """State of all sites in one episode."""

    def __init__(
        self, name: str, seeds: Mapping[str, SeedDatabase], account_ids: Mapping[str, int | None]
    ):
        self.name = name
        self.sessions = {site: SiteSession(account) for site, account in account_ids.items()}
        self._seeds = seeds
        self._databases: dict[str, sqlite3.Connection] = {}

    def reader(self, name: str) -> sqlite3.Connection:
        """Return a read-only connection to a database: the seed's before the first write."""
        connection = self._databases.get(name)
        if connection is None:
            return self._seeds[name].connection
        # A GET view that writes fails in changed worlds too, not only on the shared seed.
        connection.execute("PRAGMA query_only = ON")
        return connection

    def writer(self, name: str) -> sqlite3.Connection:
        """Return a writable connection to this world's own database."""
        if name not in self._databases:
            self._databases[name] = database.connect(self._seeds[name].image)
        connection = self._databases[name]
        connection.execute("PRAGMA query_only = OFF")
        return connection

    def close(self) -> None:
        """Close the databases of this world."""
        for connection in self._databases.values():
            connection.close()


class SeedDatabase:
    """Image of a database, and the connection through which all worlds read it."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        self.connection = database.connect_read_only(image)


class WorldStore:
    """Existing worlds of a server. Use a store and its connections from one thread only.

    Args:
        images: seed images by database name.
        account_ids: ids of the accounts that are signed in at first, by site name.
    """

    def __init__(self, images: Mapping[str, bytes], account_ids: Mapping[str, int | None]) -> None:
        self._seeds = {name: SeedDatabase(image) for name, image in images.items()}
        self._account_ids = account_ids
        self._worlds: dict[str, World] = {}
        self._names = WorldNames()

    def new(self) -> World:
        """Create a world in the seed state."""
        return self._add(World(self._names.take(), self._seeds, self._account_ids))

    def drop(self, name: str) -> None:
        """Delete a world. Repeated calls have no effect."""
        world = self._worlds.pop(name, None)
        # The check keeps a repeated call from freeing the slot twice.
        if world is not None:
            world.close()
            self._names.release(name)

    def get(self, name: str) -> World | None:
        """Return the world with a name; None if there is none."""
        return self._worlds.get(name)

    def __len__(self) -> int:
        return len(self._worlds)

    def _add(self, world: World) -> World:
        self._worlds[world.name] = world
        return world
