"""The seed image of a database: built from code and word lists alone, the same bytes every time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Database:
    """What a site keeps. Sites may share one: the admin is the back office of the shop."""

    name: str
    schema: str  # SQL, tables and indexes
    fill: Callable[[sqlite3.Connection], None]  # inserts, in a fixed order


def build(database: Database) -> bytes:
    """The image: no time stamp, no chance, one page size, no holes."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(f"PRAGMA page_size = 4096; {database.schema}")
    with connection:
        database.fill(connection)
    connection.executescript("ANALYZE; VACUUM")
    image = connection.serialize()
    connection.close()
    return image


def image(database: Database) -> bytes:
    """The same, kept in the user's cache folder until code or words of the arena change."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "webagent_jax/arena"
    path = cache / f"{database.name}-{_version(database)}.sqlite"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    built = build(database)
    with contextlib.suppress(OSError):  # a cache that cannot be written is none
        cache.mkdir(parents=True, exist_ok=True)
        for outdated in cache.glob(f"{database.name}-*.sqlite"):
            outdated.unlink(missing_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(built)
        unfinished.replace(path)
    return built


def connect(image: bytes) -> sqlite3.Connection:
    """A private copy of an image, in memory; rows can be asked by column name."""
    connection = sqlite3.connect(":memory:", cached_statements=512)
    connection.deserialize(image)
    connection.row_factory = sqlite3.Row
    return connection


def connect_read_only(image: bytes) -> sqlite3.Connection:
    connection = connect(image)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _version(database: Database) -> str:
    """Of everything the data follows from; a shop without its back office is another one."""
    kinds = ("*.py", "*.sql", "data/*")
    files = sorted(file for kind in kinds for file in _FOLDER.rglob(kind) if file.is_file())
    digest = hashlib.sha256(f"{sqlite3.sqlite_version} {database.schema}".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
